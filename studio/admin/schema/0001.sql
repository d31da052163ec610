CREATE TABLE changes (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    at_s REAL NOT NULL,
    who TEXT NOT NULL,
    before TEXT NOT NULL,   -- JSON of the settings that were changed
    after TEXT NOT NULL,
    outcome TEXT NOT NULL,  -- applied, rolled back, failed
    reason TEXT NOT NULL,
    predicted TEXT NOT NULL,  -- JSON of the planner's figures
    found TEXT NOT NULL       -- JSON of the same figures as they turned out
);
CREATE TABLE presets (name TEXT PRIMARY KEY, settings TEXT NOT NULL, at_s REAL NOT NULL);
