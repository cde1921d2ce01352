# The daemon's own user. Vendors have the numbers from 2900 to 2999: choose another where this one is taken.
[AID_VENDOR_NNHAL]
value: 2947
