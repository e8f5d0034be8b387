"""Studies: arms of stored runs compared: estimates, paired effects, corrected p-values, conclusions."""
