"""The whole build: from plans to bundle files, with reports and debug twins, and the stamp of a build that is up to date."""
