"""Lake Formation as AWS documents it, instead of moto's: LF-Tags, grants, data locations and opt-ins."""
