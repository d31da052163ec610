"""One file a tab; a tab is one function that takes what it needs."""
