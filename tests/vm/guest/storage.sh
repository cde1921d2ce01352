# The daemon's data directory: on a full disk, on one that has room again, and on one that cannot be written.

image=$(ls "$images"/*.png | head -n 1)

# Predicts one image through instance $1 with a cache in directory $2, which must be a $3: hit or miss.
predict_cached() {
  timeout 100 nnhal run --service "binder:$1" "$model" --input "$image" --cache "$2" >/tmp/run.log 2>&1 ||
    fail "nnhal run ended with status $?"
  grep -q "^cache $3" /tmp/run.log || fail "wanted a cache $3, got: $(grep '^cache' /tmp/run.log)"
  # All but the times.
  grep -vE '^(cache|ran) ' /tmp/run.log >/tmp/outputs
  [ -s /tmp/outputs ] || fail "nothing came out"
  [ -e /tmp/outputs.first ] || cp /tmp/outputs /tmp/outputs.first
  cmp /tmp/outputs.first /tmp/outputs || fail "the outputs changed"
  echo "  a $3"
}

# Checks that instance $1 has logged a line with $2.
logged() {
  grep -q "$2" "/tmp/$1.log" || fail "$1 does not say $2 in its log"
  echo "  it said: $(grep "$2" "/tmp/$1.log" | head -n 1)"
}

step "a data directory on a full disk: served without caching"
mkdir -p /tiny
mount -t tmpfs -o size=4m tiny /tiny || fail "no tmpfs"
dd if=/dev/zero of=/tiny/filler bs=4k >/dev/null 2>&1
start_daemon full --data /tiny/data
predict_cached full /tmp/cache-full miss
predict_cached full /tmp/cache-full miss
logged full "not cached.*No space left"

step "the disk has room again: cached, without a restart"
rm /tiny/filler
predict_cached full /tmp/cache-full miss
predict_cached full /tmp/cache-full hit

step "it fills up once more: what is there is found, nothing new is saved, and nothing is lost"
dd if=/dev/zero of=/tiny/filler bs=4k >/dev/null 2>&1
predict_cached full /tmp/cache-full hit
predict_cached full /tmp/cache-new miss
predict_cached full /tmp/cache-new miss
rm /tiny/filler
predict_cached full /tmp/cache-full hit
stop_daemon
umount /tiny

step "a data directory that cannot be written: served without caching"
mkdir -p /readonly
mount -t tmpfs readonly /readonly && mount -o remount,ro /readonly || fail "no read-only tmpfs"
start_daemon readonly --data /readonly/data
predict_cached readonly /tmp/cache-readonly miss
predict_cached readonly /tmp/cache-readonly miss
logged readonly "not cached.*Read-only"
stop_daemon
