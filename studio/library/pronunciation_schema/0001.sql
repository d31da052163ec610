-- How words are to be said: the respelling that is read in place of a word.
CREATE TABLE pronunciation (
    id        TEXT PRIMARY KEY,
    word      TEXT NOT NULL COLLATE NOCASE,
    said      TEXT NOT NULL,
    voice     TEXT NOT NULL DEFAULT '',                  -- the id of the only voice it is for; empty: all
    created_s REAL NOT NULL,                             -- Unix time
    UNIQUE (word, voice)
);
