variable "bucket" {
  description = "Name of the bucket of the store; it is created."
  type        = string
}

variable "prefix" {
  description = "Prefix of the store in the bucket, without slashes at its ends."
  type        = string
  default     = "savepoints"

  validation {
    condition     = can(regex("^[A-Za-z0-9][A-Za-z0-9_./-]*[A-Za-z0-9]$", var.prefix))
    error_message = "The prefix must not be empty, and must not begin or end with a slash."
  }
}

variable "checkpoints" {
  description = "Where the queries keep their checkpoints, each as BUCKET/PREFIX."
  type        = list(string)
}

variable "tables" {
  description = "Where the queries keep their output tables, each as BUCKET/PREFIX."
  type        = list(string)
}

variable "kms_key_arn" {
  description = "Key for the encryption of the store; by default S3's own."
  type        = string
  default     = null
}

variable "noncurrent_days" {
  description = "How long deleted and replaced objects of the store can be brought back."
  type        = number
  default     = 30
}

variable "tags" {
  description = "Tags of the bucket and the policies."
  type        = map(string)
  default     = {}
}
