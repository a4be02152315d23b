//! The JSON of the wire: what a caller is shown, made from the domain's own types in one place each. What is not here:
//! frames of the channel (`wire::frame`), reading requests (`http::extract`), and the log's own bytes (the store).

use std::borrow::Cow;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use time::OffsetDateTime;
use toolgate_core::json::Json;
use toolgate_core::time::Timestamp;
use utoipa::openapi::schema::{ObjectBuilder, SchemaType};
use utoipa::openapi::{RefOr, Schema};

pub mod approval;
pub mod call;
pub mod delta;
pub mod event;
pub mod explain;
pub mod frame;
pub mod hook;
pub mod observation;
pub mod page;
pub mod registry;
pub mod session;
pub mod usage;
pub mod verify;

/// The form of an event or a document when nothing else is said: any JSON value, its text exactly as it was judged.
///
/// A number keeps every digit (64-bit integers too), so that a client can hash what it received.
#[derive(Debug, Clone)]
pub struct RawJson(Box<RawValue>);

impl RawJson {
    /// The text.
    #[must_use]
    pub fn get(&self) -> &str {
        self.0.get()
    }
}

impl From<&Json> for RawJson {
    fn from(json: &Json) -> Self {
        // Canonical text is JSON; the fallback cannot be reached and shows as `null`.
        Self(RawValue::from_string(json.as_str().to_owned()).unwrap_or_else(|_| RawValue::NULL.to_owned()))
    }
}

impl Serialize for RawJson {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl utoipa::PartialSchema for RawJson {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(SchemaType::AnyValue)
            .description(Some("Any JSON value, exactly as it was judged; integers may use 64 bits."))
            .into()
    }
}

impl utoipa::ToSchema for RawJson {
    fn name() -> Cow<'static, str> {
        "AnyJson".into()
    }
}

impl schemars::JsonSchema for RawJson {
    fn schema_name() -> Cow<'static, str> {
        "AnyJson".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({
            "description": "Any JSON value, exactly as it was judged; integers may use 64 bits."
        })
    }
}

/// A time as the wire has it: RFC 3339, UTC, three decimals, `Z`. Cut to the millisecond, never rounded up.
#[must_use]
pub fn time_text(at: Timestamp) -> String {
    let ms = at.as_micros().div_euclid(1_000);
    // Years beyond 9999 have no RFC 3339 form; a deadline that far away is shown as the last one that has.
    let ms = ms.clamp(-62_135_596_800_000, 253_402_300_799_999);
    let Ok(t) = OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000) else { return String::new() };
    let (year, month, day) = (t.year(), u8::from(t.month()), t.day());
    let (hour, minute, second, ms) = t.to_hms_milli();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_exactly_three_decimals() {
        assert_eq!(time_text(Timestamp(0)), "1970-01-01T00:00:00.000Z");
        assert_eq!(time_text(Timestamp(1_754_000_000_123_999)), "2025-07-31T22:13:20.123Z");
        assert_eq!(time_text(Timestamp(-1)), "1969-12-31T23:59:59.999Z");
        assert_eq!(time_text(Timestamp(i64::MAX)), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn arguments_keep_every_digit() {
        let text = "{\"a\":18446744073709551615,\"b\":1e+21,\"c\":-9223372036854775808}";
        let shown = serde_json::to_string(&RawJson::from(&Json::parse(text).unwrap_or_else(|_| Json::empty_object())));
        assert_eq!(shown.ok().as_deref(), Some(text));
    }
}
