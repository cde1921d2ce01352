# What the steps in the machine have in common. The repository is at /repo, read-only.
model=/repo/models/digits_int8.tflite
images=/repo/tests/data/digits
interface=android.hardware.neuralnetworks.IDevice

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

# Whether instance $1 is registered.
registered() { rsb_service check "$interface/$1" >/dev/null 2>&1; }
unregistered() { ! registered "$1"; }
hub_answers() { rsb_service list >/dev/null 2>&1; }
# A child that ended stays as a zombie until it is waited for.
ended() { case $(awk '{ print $3 }' "/proc/$1/stat" 2>/dev/null) in '' | Z) ;; *) false ;; esac }
# Clock ticks (10 ms) of processor time that process $1 has used.
ticks() { awk '{ print $14 + $15 }' "/proc/$1/stat" 2>/dev/null || echo 0; }
used_more_than() { [ "$(ticks "$1")" -gt "$2" ]; }

# Who a device has, for steps that are of somebody: each has a home.
add_users() {
  for entry in "app 10123 /data/data/app" "isolated 99001 /" "shell 2000 /data/local/tmp" "system 1000 /data/system" \
    "vendor_nnhal $(sed -n 's/^value: *//p' /repo/android/config.fs) /"; do
    set -- $entry
    echo "$1:x:$2:$2::$3:/bin/sh" >>/etc/passwd
    echo "$1:x:$2:" >>/etc/group
  done
}

# Runs a command as user $1, within two minutes.
as_user() {
  user=$1
  shift
  case $user in root) timeout 120 "$@" ;; *) timeout 120 su -s /bin/sh -c 'exec "$0" "$@"' -- "$user" "$@" ;; esac
}

# Starts a daemon as instance $1 with the rest of the arguments for flags; sets daemon.
start_daemon() {
  instance=$1
  shift
  nnhald --service "binder:$instance" "$@" >>"/tmp/$instance.log" 2>&1 &
  daemon=$!
  wait_until 60 registered "$instance" || fail "the daemon did not register $instance within 60 s"
  ended "$daemon" && fail "the daemon registered, then ended"
}

# Ends the daemon, which must have lived until now, as init would.
stop_daemon() {
  ended "$daemon" && fail "the daemon ended by itself"
  kill "$daemon"
  wait "$daemon" || fail "the daemon ended with status $?"
}

# Predicts every image through instance $1 and leaves predictions and accuracy in $2; the rest is for nnhal run.
predict() {
  through=$1 to=$2
  shift 2
  timeout 100 nnhal run --service "binder:$through" "$model" --input "$images" "$@" >/tmp/run.log 2>&1 ||
    fail "nnhal run ended with status $?"
  sh /repo/tests/check_digits.sh /tmp/run.log "$images" >"$to" || fail "the predictions are wrong"
  echo "  $(tail -n 1 "$to")"
}

# Checks that a client, whose status is $1 and messages are in $2, gave up with one clear line.
one_line_error() {
  [ "$1" != 0 ] || fail "the client reports success"
  [ "$1" -lt 124 ] || fail "the client hung or died of a signal (status $1)"
  [ "$(wc -l <"$2")" = 1 ] || fail "wanted an error of one line, got $(wc -l <"$2")"
  grep -qi panicked "$2" && fail "the client panicked"
  echo "  it said: $(cat "$2")"
}

# Runs the test program $1, or a module of it (PROGRAM::MODULE), on the daemon that was started last; the rest of the
# arguments are the program's. What it says is in /tmp/NAME.log. One test at a time: a client's limits are those of its
# user, and all are the same user here.
run_tests() {
  program=${1%%::*} name=${1##*::}
  case $1 in *::*) filter=$name:: ;; *) filter= ;; esac
  shift
  NNHAL_SERVICE="binder:$instance" NNHAL_SERVICE_PID=$daemon timeout 900 "/tests/$program" --test-threads=1 "$@" $filter \
    >"/tmp/$name.log" 2>&1 || { status=$? && tail -n 60 "/tmp/$name.log" && fail "$name ended with status $status"; }
  ended "$daemon" && fail "the daemon ended during $name"
  summary=$(grep '^test result: ok' "/tmp/$name.log" | tail -n 1)
  [ -n "$summary" ] || fail "$name has no result"
  case $summary in *" 0 passed"*) fail "$name ran no test" ;; esac
  echo "  $name:${summary#test result:}"
}

# Announces a step; says how long the one before took.
step() {
  now=$(date +%s)
  [ -z "${began:-}" ] || echo "  ($((now - began)) s)"
  began=$now
  echo "$*"
}

skip() { echo "  SKIPPED: $*"; }
