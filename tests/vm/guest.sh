#!/bin/sh
# Runs inside the machine, started by run.sh: serves over the kernel's binder, predicts, kills the daemon, starts over.
# The repository is at /repo, read-only.
model=/repo/models/digits_int8.tflite
images=/repo/tests/data/digits
service=android.hardware.neuralnetworks.IDevice/nnhal

fail() {
  echo "FAILED: $*"
  for log in /tmp/*.log; do [ -s "$log" ] && echo "--- $log" && tail -n 20 "$log"; done
  exit 1
}

# Waits up to $1 seconds until the rest of the arguments, a command, succeeds.
wait_until() {
  tenths=$(($1 * 10))
  shift
  while ! "$@"; do
    tenths=$((tenths - 1))
    [ "$tenths" -gt 0 ] || return 1
    sleep 0.1
  done
}

registered() { rsb_service check "$service" >/dev/null 2>&1; }
unregistered() { ! registered; }
hub_answers() { rsb_service list >/dev/null 2>&1; }
# A child that ended stays as a zombie until it is waited for.
ended() { case $(awk '{ print $3 }' "/proc/$1/stat" 2>/dev/null) in '' | Z) ;; *) false ;; esac }
# Clock ticks (10 ms) of processor time that process $1 has used.
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat" 2>/dev/null || echo 0; }
used_more_than() { [ "$(ticks "$1")" -gt "$2" ]; }

start_daemon() {
  nnhald --service binder:nnhal >>/tmp/nnhald.log 2>&1 &
  daemon=$!
  wait_until 20 registered || fail "the daemon did not register $service within 20 s"
  ended "$daemon" && fail "the daemon registered, then ended"
}

# Predicts every image over binder and leaves predictions and accuracy in $1.
predict() {
  timeout 60 nnhal run --service binder:nnhal "$model" --input "$images" >/tmp/run.log 2>&1 ||
    fail "nnhal run ended with status $?"
  sh /repo/tests/check_digits.sh /tmp/run.log "$images" >"$1" || fail "the predictions are wrong"
  echo "  $(tail -n 1 "$1")"
}

# Checks that a client, whose status is $1 and messages are in $2, gave up with one clear line.
one_line_error() {
  [ "$1" != 0 ] || fail "the client reports success"
  [ "$1" -lt 124 ] || fail "the client hung or died of a signal (status $1)"
  [ "$(wc -l <"$2")" = 1 ] || fail "wanted an error of one line, got $(wc -l <"$2")"
  grep -qi panicked "$2" && fail "the client panicked"
  echo "  it said: $(cat "$2")"
}

echo "1. the service manager starts"
rsb_hub --insecure-allow-all >/tmp/rsb_hub.log 2>&1 &
wait_until 20 hub_answers || fail "the service manager does not answer"

echo "2. a client finds no driver"
timeout 30 nnhal run --service binder:nnhal "$model" --input "$images" >/tmp/run.log 2>/tmp/error.log
one_line_error $? /tmp/error.log

echo "3. the daemon registers, the tool predicts through it"
start_daemon
predict /tmp/first

echo "4. the daemon is killed while a client runs"
before=$(ticks "$daemon")
timeout 90 nnhal run --service binder:nnhal "$model" --input "$images" --runs 1000000 \
  >/tmp/run.log 2>/tmp/error.log &
client=$!
# Half a second of the daemon's processor time is far more than compilation takes: it is running the model.
wait_until 60 used_more_than "$daemon" $((before + 50)) || fail "the daemon does no work for the client"
ended "$client" && fail "the client ended before the daemon was killed: $(cat /tmp/error.log)"
kill -9 "$daemon"
wait_until 20 ended "$client" || fail "the client still waits, 20 s after the daemon died"
wait "$client"
one_line_error $? /tmp/error.log
wait_until 20 unregistered || fail "the service manager still lists the dead daemon"

echo "5. a new daemon serves, with the same predictions"
start_daemon
predict /tmp/second
cmp /tmp/first /tmp/second || fail "the predictions changed"
ended "$daemon" && fail "the daemon ended by itself"
exit 0
