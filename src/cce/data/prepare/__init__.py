"""From raw files to a prepared data set. What is public is in `cce.data`; reading raw files is the job of `sources`."""
