"""The sections of the HTML report: each is a function from a view of the study to markup."""
