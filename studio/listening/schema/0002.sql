-- What instruments said of a test's clips, as `python -m studio.evaluate.companion` prints it.
CREATE TABLE measures (
    test TEXT PRIMARY KEY REFERENCES test (id) ON DELETE CASCADE,
    body TEXT NOT NULL                          -- JSON
);
