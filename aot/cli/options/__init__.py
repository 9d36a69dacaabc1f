"""Options that several commands share: each module defines one family of options and reads their values."""
