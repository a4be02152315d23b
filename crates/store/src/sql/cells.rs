//! Reading typed cells of a result row on either database.

use sqlx::postgres::PgRow;
use sqlx::sqlite::SqliteRow;
use sqlx::{Database, Decode, Type};
use uuid::Uuid;

use crate::error::StoreError;

/// A result row whose cells are read by name. A cell of another type is corruption, named by its column.
pub(crate) trait Cells {
    fn int(&self, column: &str) -> Result<i64, StoreError>;
    fn maybe_int(&self, column: &str) -> Result<Option<i64>, StoreError>;
    fn flag(&self, column: &str) -> Result<bool, StoreError>;
    fn text(&self, column: &str) -> Result<String, StoreError>;
    fn maybe_text(&self, column: &str) -> Result<Option<String>, StoreError>;
    fn bytes(&self, column: &str) -> Result<Vec<u8>, StoreError>;
    fn maybe_bytes(&self, column: &str) -> Result<Option<Vec<u8>>, StoreError>;
    fn key(&self, column: &str) -> Result<Uuid, StoreError>;
    fn maybe_key(&self, column: &str) -> Result<Option<Uuid>, StoreError>;

    /// A number that is never negative.
    fn count(&self, column: &str) -> Result<u64, StoreError> {
        u64::try_from(self.int(column)?).map_err(|_| corrupt(column, "negative number"))
    }

    /// A small number that is never negative.
    fn maybe_small(&self, column: &str) -> Result<Option<u32>, StoreError> {
        self.maybe_int(column)?
            .map(|n| u32::try_from(n).map_err(|_| corrupt(column, "number out of range")))
            .transpose()
    }

    /// A hash or digest.
    fn hash(&self, column: &str) -> Result<[u8; 32], StoreError> {
        self.bytes(column)?.try_into().map_err(|_| corrupt(column, "not 32 bytes"))
    }
}

/// Corruption at a column.
pub(crate) fn corrupt(column: &str, detail: impl ToString) -> StoreError {
    StoreError::Corrupt { place: format!("column `{column}`"), detail: detail.to_string() }
}

fn cell<'r, T, R>(row: &'r R, column: &str) -> Result<T, StoreError>
where
    R: sqlx::Row,
    T: Decode<'r, R::Database> + Type<R::Database>,
    R::Database: Database,
    for<'c> &'c str: sqlx::ColumnIndex<R>,
{
    row.try_get(column).map_err(|error| corrupt(column, error))
}

macro_rules! cells {
    ($row:ty) => {
        impl Cells for $row {
            fn int(&self, column: &str) -> Result<i64, StoreError> {
                cell(self, column)
            }
            fn maybe_int(&self, column: &str) -> Result<Option<i64>, StoreError> {
                cell(self, column)
            }
            fn flag(&self, column: &str) -> Result<bool, StoreError> {
                cell(self, column)
            }
            fn text(&self, column: &str) -> Result<String, StoreError> {
                cell(self, column)
            }
            fn maybe_text(&self, column: &str) -> Result<Option<String>, StoreError> {
                cell(self, column)
            }
            fn bytes(&self, column: &str) -> Result<Vec<u8>, StoreError> {
                cell(self, column)
            }
            fn maybe_bytes(&self, column: &str) -> Result<Option<Vec<u8>>, StoreError> {
                cell(self, column)
            }
            fn key(&self, column: &str) -> Result<Uuid, StoreError> {
                cell(self, column)
            }
            fn maybe_key(&self, column: &str) -> Result<Option<Uuid>, StoreError> {
                cell(self, column)
            }
        }
    };
}

cells!(PgRow);
cells!(SqliteRow);
