variable "name" {
  description = "What the stack's name is in CloudFormation: of the stack with the database, and in the name of the policy."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9-]{0,62}$", var.name))
    error_message = "a letter, then up to 62 letters, digits and hyphens"
  }
}

variable "database_name" {
  description = "Glue database, which is created. Its name is the namespace's, as the connector writes it."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9_]{1,255}$", var.database_name))
    error_message = "lower-case letters, digits and _"
  }
}

variable "bucket_name" {
  description = "Name of the lake's bucket."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.bucket_name)) && !startswith(var.bucket_name, "xn--") && !strcontains(var.bucket_name, "..")
    error_message = "3 to 63 lower-case letters, digits, dots and hyphens"
  }
}

variable "bucket_prefix" {
  description = "Folder of the bucket for everything that the connector writes."
  type        = string
  default     = "lake"

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*$", var.bucket_prefix)) && length(var.bucket_prefix) <= 200
    error_message = "names of letters, digits, _, . and -, with single slashes between them"
  }
}

variable "role_arn" {
  description = "ARN of the connector's role."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@-]+$", var.role_arn))
    error_message = "the ARN of an IAM role without a path"
  }
}

variable "lake_formation_mode" {
  description = "The lake's mode."
  type        = string
  default     = "none"

  validation {
    condition     = contains(["none", "hybrid", "managed"], var.lake_formation_mode)
    error_message = "none, hybrid or managed"
  }

  validation {
    condition     = var.lake_formation_mode != "none" || (var.lf_tag_key == "" && var.reader_principal_arn == "")
    error_message = "lf_tag_key and reader_principal_arn need lake_formation_mode hybrid or managed."
  }
}

variable "reader_principal_arn" {
  description = "Principal that may read all tables of the database through Lake Formation. Empty for nobody."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^(arn:aws[a-z-]*:iam::[0-9]{12}:(user|role)/.+)?$", var.reader_principal_arn))
    error_message = "the ARN of an IAM user or role, or empty"
  }
}

variable "lf_tag_key" {
  description = "Key of an existing LF-Tag for the database, which its tables and columns inherit. Empty for none."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^([a-z0-9_.:/=+@%-]+)?$", var.lf_tag_key)) && length(var.lf_tag_key) <= 128
    error_message = "lower-case letters, digits and _.:/=+@%-, or empty"
  }
}

variable "lf_tag_value" {
  description = "Value of the LF-Tag."
  type        = string
  default     = "internal"

  validation {
    condition     = length(var.lf_tag_value) >= 1 && length(var.lf_tag_value) <= 256
    error_message = "1 to 256 characters"
  }
}
