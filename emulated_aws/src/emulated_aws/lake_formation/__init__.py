"""Lake Formation as AWS documents it, in moto's place: LF-Tags, grants, data locations, opt-ins."""
