resource "aws_s3_bucket" "store" {
  bucket = var.bucket
  tags   = var.tags

  lifecycle {
    prevent_destroy = true
  }
}

resource "aws_s3_bucket_public_access_block" "store" {
  bucket                  = aws_s3_bucket.store.id
  block_public_acls       = true
  block_public_policy     = true
  ignore_public_acls      = true
  restrict_public_buckets = true
}

# What `expire` or a person deletes by mistake can be brought back.
resource "aws_s3_bucket_versioning" "store" {
  bucket = aws_s3_bucket.store.id

  versioning_configuration {
    status = "Enabled"
  }
}

resource "aws_s3_bucket_server_side_encryption_configuration" "store" {
  bucket = aws_s3_bucket.store.id

  rule {
    bucket_key_enabled = true

    apply_server_side_encryption_by_default {
      sse_algorithm     = var.kms_key_arn == null ? "AES256" : "aws:kms"
      kms_master_key_id = var.kms_key_arn
    }
  }
}

# No rule expires current objects: which savepoints are kept is `savepoints expire`'s business, and
# a savepoint without one of its files is broken.
resource "aws_s3_bucket_lifecycle_configuration" "store" {
  bucket = aws_s3_bucket.store.id

  rule {
    id     = "incomplete-uploads"
    status = "Enabled"
    filter {}

    abort_incomplete_multipart_upload {
      days_after_initiation = 7
    }
  }

  rule {
    id     = "noncurrent-versions"
    status = "Enabled"
    filter {}

    noncurrent_version_expiration {
      noncurrent_days = var.noncurrent_days
    }
  }

  depends_on = [aws_s3_bucket_versioning.store]
}

locals {
  places = {
    bucket      = var.bucket
    prefix      = var.prefix
    read        = [for place in concat(var.checkpoints, var.tables) : "arn:aws:s3:::${place}/*"]
    buckets     = distinct([for place in concat(var.checkpoints, var.tables) : "arn:aws:s3:::${split("/", place)[0]}"])
    list_within = distinct([for place in concat(var.checkpoints, var.tables) : "${join("/", slice(split("/", place), 1, length(split("/", place))))}*"])
  }
  roles = toset(["taker", "operator", "reader"])
}

resource "aws_iam_policy" "role" {
  for_each = local.roles
  name     = "${var.bucket}-savepoints-${each.key}"
  policy   = templatefile("${path.module}/policies/${each.key}.json.tftpl", local.places)
  tags     = var.tags
}

# A key of one's own has to be usable by all three.
resource "aws_iam_policy" "key" {
  count = var.kms_key_arn == null ? 0 : 1
  name  = "${var.bucket}-savepoints-key"
  tags  = var.tags

  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = ["kms:Decrypt", "kms:GenerateDataKey"]
      Resource = var.kms_key_arn
    }]
  })
}
