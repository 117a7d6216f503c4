variable "name" {
  description = "Name of the key's alias, the workgroup, the event stream and the stack with the database: what the stack's name is in CloudFormation."
  type        = string
  default     = "datalake"

  validation {
    condition     = can(regex("^[A-Za-z][A-Za-z0-9-]{0,62}$", var.name))
    error_message = "a letter, then up to 62 letters, digits and hyphens"
  }
}

# ----------------------------------------------------------------------------------------------------------- data lake

variable "bucket_name" {
  description = "Name of the bucket. It is created, unless create_bucket is false."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", var.bucket_name)) && !startswith(var.bucket_name, "xn--") && !strcontains(var.bucket_name, "..")
    error_message = "3 to 63 lower-case letters, digits, dots and hyphens"
  }
}

variable "bucket_prefix" {
  description = "Folder of the bucket for everything that the connector writes, without slashes around it."
  type        = string
  default     = "lake"

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_.-]*(/[A-Za-z0-9][A-Za-z0-9_.-]*)*$", var.bucket_prefix)) && length(var.bucket_prefix) <= 200
    error_message = "names of letters, digits, _, . and -, with single slashes between them"
  }
}

variable "database_name" {
  description = "Glue database, which is created. All streams become tables of it (database_strategy single)."
  type        = string
  default     = "landing"

  validation {
    condition     = can(regex("^[a-z0-9_]{1,255}$", var.database_name))
    error_message = "lower-case letters, digits and _"
  }
}

variable "create_bucket" {
  description = "false to use an existing bucket. Its policy, encryption and lifecycle rules are then left as they are."
  type        = bool
  default     = true
}

variable "existing_key_arn" {
  description = "ARN of an existing KMS key of this region. Empty to create a key."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^(arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[A-Za-z0-9-]+)?$", var.existing_key_arn))
    error_message = "a key's ARN (not an alias), or empty"
  }
}

variable "require_encryption_header" {
  description = "true to deny every upload that does not ask for SSE-KMS itself. The connector does; other writers may rely on the bucket's default encryption, which covers all objects in either case. Of no effect on an existing bucket."
  type        = bool
  default     = false
}

# ------------------------------------------------------------------------------------------------------ connector role

variable "trusted_principal_arn" {
  description = "IAM user, role or account (its root) that may assume the connector's role."
  type        = string

  validation {
    condition     = can(regex("^arn:aws[a-z-]*:iam::[0-9]{12}:(root|user/.+|role/.+)$", var.trusted_principal_arn))
    error_message = "the ARN of an account's root, an IAM user or an IAM role"
  }
}

variable "external_id" {
  description = "External id that has to be sent to assume the role, such as the workspace's id."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9_+=,.@:/-]+$", var.external_id)) && length(var.external_id) >= 2 && length(var.external_id) <= 1224
    error_message = "2 to 1224 letters, digits and _+=,.@:/-"
  }
}

variable "max_session_duration" {
  description = "Longest session of the connector's role, in seconds."
  type        = number
  default     = 3600

  validation {
    condition     = var.max_session_duration >= 3600 && var.max_session_duration <= 43200
    error_message = "3600 to 43200"
  }
}

# ------------------------------------------------------------------------------------------------------ Lake Formation

variable "lake_formation_mode" {
  description = "none: IAM alone. managed: the location is registered and Lake Formation decides. hybrid: Lake Formation decides for principals that were opted in (output opt_in_commands), IAM for all others."
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
  description = "Key of the LF-Tag on the database, which its tables and columns inherit. Empty for none."
  type        = string
  default     = ""

  validation {
    condition     = can(regex("^([a-z0-9_.:/=+@%-]+)?$", var.lf_tag_key)) && length(var.lf_tag_key) <= 128
    error_message = "lower-case letters, digits and _.:/=+@%-, or empty"
  }
}

variable "lf_tag_values" {
  description = "Values of the LF-Tag. The first is assigned to the database."
  type        = list(string)
  default     = ["internal"]
}

variable "create_lf_tag" {
  description = "false if the account already has an LF-Tag of this key and these values."
  type        = bool
  default     = true
}

# -------------------------------------------------------------------------------------------------------------- extras

variable "create_athena_work_group" {
  description = "true to create an Athena workgroup that encrypts query results and keeps them for 30 days."
  type        = bool
  default     = false
}

variable "create_event_stream" {
  description = "true to create a Kinesis stream whose events Firehose delivers to a table of the same database."
  type        = bool
  default     = false

  # Glue writes the event table's first metadata, Firehose its files: nobody can tell them to send the header.
  validation {
    condition     = !(var.require_encryption_header && var.create_event_stream)
    error_message = "create_event_stream needs require_encryption_header false."
  }
}

variable "event_table_name" {
  description = "Table of the events. No stream of the connector may become a table of this name."
  type        = string
  default     = "events"

  validation {
    condition     = can(regex("^[a-z0-9_]{1,255}$", var.event_table_name))
    error_message = "lower-case letters, digits and _"
  }
}
