# What a product inherits to have the driver:
#   $(call inherit-product, PATH/android/nnhal.mk)
# and, in its BoardConfig.mk:
#   include PATH/android/nnhal_board.mk
# NNHAL_IN_APEX := true, set before, has the daemon in an APEX instead of on the vendor partition: from Android 14 on, and with
# nnhal_apex.bp read, as it says.
ifeq ($(NNHAL_IN_APEX),true)
PRODUCT_PACKAGES += com.nnhal.hardware.neuralnetworks
else
PRODUCT_PACKAGES += android.hardware.neuralnetworks-service.nnhal
endif
