"""A merge as the table sees it: which rows are merged by what, the files that take part, the jobs, and the commit."""
