-- What proves, at start, that a server has the master key that this database was written with: a keyed hash, one row.
CREATE TABLE master_check (
    one   INTEGER NOT NULL UNIQUE CHECK (one = 1),
    value BLOB    NOT NULL CHECK (length(value) = 32)
) STRICT;
