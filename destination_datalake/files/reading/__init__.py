"""Reading of data files on executors: a few rows at a time, in the columns that the table has now."""
