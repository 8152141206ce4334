"""What clients hold, and how it ends: leases, locks, fences, delegations, the shared clock."""
