CREATE TABLE runs (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at_s REAL NOT NULL,
    who TEXT NOT NULL,
    asked TEXT NOT NULL,       -- JSON: sweep, values, streams, seconds, text_s
    conditions TEXT NOT NULL,  -- JSON: hardware, commit, versions, load of the machine
    outcome TEXT NOT NULL,     -- running, finished, stopped, failed, interrupted
    reason TEXT NOT NULL,
    points TEXT NOT NULL       -- JSON: a row of figures for each value that was tried
);
