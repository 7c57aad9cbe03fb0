"""The three machines behind the Host protocol: live, recorded, replayed."""
