#!/bin/sh
# Checks what `nnhal run` of a digits model printed: a prediction for every image, and enough of them right.
#
#   tests/check_digits.sh OUTPUT IMAGES
#
# OUTPUT is a file with the tool's output, IMAGES the directory it was given. The images' names tell the truth
# (0002_label2.png); the first number after a name is the prediction. Counts for itself and wants the tool's accuracy
# line to agree. Prints the predictions and the accuracy; a fault is a line on standard error and status 1.
output=$1
images=$2
least=97

expected=$(find "$images" -name '*.png' | wc -l)
awk -v expected="$expected" -v least="$least" '
  function fault(what) { print "check_digits: " what >"/dev/stderr"; bad = 1; exit 1 }
  match($0, /_label[0-9]\.png/) {
    truth = substr($0, RSTART + 6, 1)
    rest = substr($0, RSTART + RLENGTH)
    if (!match(rest, /[0-9]+/)) fault("no prediction: " $0)
    if (substr(rest, RSTART, RLENGTH) == truth) right++
    predictions++
    print
    next
  }
  tolower($0) ~ /accuracy/ && match($0, /[0-9]+(\.[0-9]+)? *%/) { told = substr($0, RSTART, RLENGTH) + 0; line = $0 }
  END {
    if (bad) exit 1
    if (predictions != expected || !expected) fault(predictions + 0 " predictions for " expected " images")
    if (line == "") fault("no line gives the accuracy")
    accuracy = 100 * right / predictions
    if (accuracy - told > 0.1 || told - accuracy > 0.1) fault("the tool says " told " %, the names say " accuracy " %")
    if (accuracy < least) fault("accuracy " accuracy " %, wanted " least " % at least")
    print line
  }' "$output"
