"""Lake Formation: what is desired, what there is, the difference, and the calls that make it none."""
