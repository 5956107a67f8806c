"""What a job is (``JobSpec``) and where it runs (``Site``), from flags, files, profiles and defaults."""
