"""Studies compare the arms of stored runs: estimates, paired effects, corrected p-values and conclusions."""
