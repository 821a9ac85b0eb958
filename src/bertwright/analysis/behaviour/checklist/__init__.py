"""CheckList: suites of behavioural tests for classifiers."""
