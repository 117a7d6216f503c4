"""The types of values, a family a module: what Arrow is asked for, the vectorised rule, the careful rule."""
