CREATE TABLE script (
    id        TEXT PRIMARY KEY,
    client    TEXT NOT NULL,                    -- whose it is: the name in the fair queue
    title     TEXT NOT NULL,
    created_s REAL NOT NULL                     -- Unix time
);
CREATE INDEX script_client ON script (client, created_s);
CREATE TABLE line (
    id       TEXT PRIMARY KEY,
    script   TEXT NOT NULL,
    position INTEGER NOT NULL,                  -- order of hearing, from 0
    speaker  TEXT NOT NULL,
    voice    TEXT NOT NULL,                     -- id of a voice; '' while none is chosen
    text     TEXT NOT NULL,
    pause_s  REAL NOT NULL,                     -- silence after it
    at_s     REAL,                              -- where it must not begin before
    seed     INTEGER,                           -- of its first take
    take     TEXT NOT NULL DEFAULT '',          -- the take that is exported
    status   TEXT NOT NULL CHECK (status IN ('new', 'waiting', 'done', 'failed')),
    fault    TEXT NOT NULL DEFAULT ''           -- JSON: key and values of a sentence of the catalogue
);
CREATE INDEX line_script ON line (script, position);
