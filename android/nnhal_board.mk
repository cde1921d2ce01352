# The driver's policy and user. See nnhal.mk.
NNHAL_ANDROID := $(patsubst %/,%,$(dir $(lastword $(MAKEFILE_LIST))))
BOARD_VENDOR_SEPOLICY_DIRS += $(NNHAL_ANDROID)/sepolicy
TARGET_FS_CONFIG_GEN += $(NNHAL_ANDROID)/config.fs
