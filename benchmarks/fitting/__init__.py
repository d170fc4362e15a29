"""How the weights of the ranking are fitted: cases from the data sets, regressions, figures with one group left out."""
