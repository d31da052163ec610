-- A test whose material is being made under settings of its own; what is here when the studio starts was cut off.
CREATE TABLE series (
    test  TEXT PRIMARY KEY REFERENCES test (id) ON DELETE CASCADE,
    who   TEXT NOT NULL,                        -- the administrator's session
    tries INTEGER NOT NULL                      -- how many times it was begun
);
