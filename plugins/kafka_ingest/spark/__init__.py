"""Submitting the job to Spark: command, archive, installation, packages."""
