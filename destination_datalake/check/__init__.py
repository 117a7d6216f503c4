"""`check`: tries what a sync will do, and cleans up behind itself."""
