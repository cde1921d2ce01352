# Serves over the kernel's binder, predicts, tells of itself, kills the daemon, starts over.
step "a client finds no driver"
timeout 30 nnhal run --service binder:nnhal "$model" --input "$images" >/tmp/run.log 2>/tmp/error.log
one_line_error $? /tmp/error.log

step "the daemon registers, the tool predicts through it"
start_daemon nnhal
echo "  $(grep -o 'serving binder:.*' /tmp/nnhal.log)"
predict nnhal /tmp/first

step "who asks what the driver does is told what it may know"
# As dumpsys does, a test asks for a dump.
dumps="dumps::a_dump_is_for_who_may_see_all dumps::a_dump_that_nobody_reads_holds_up_nobody_else
  dumps::what_is_no_dump_is_refused"
for client in root system shell app; do
  case $client in app) view=own ;; *) view=all ;; esac
  for form in text json; do
    case $form in text) flags= line="view: $view" ;; json) flags=--json line="\"view\":\"$view\"" ;; esac
    as_user $client nnhal --service binder:nnhal info --live $flags >/tmp/live 2>/tmp/live.log ||
      fail "nnhal info --live as $client ended with status $?"
    grep -q "$line" /tmp/live || fail "$client sees, as $form: $(head -c 2000 /tmp/live)"
  done
  # No other client's figures, and none of the driver as a whole.
  grep -q '"quotas"' /tmp/live && told=all || told=own
  [ $told = $view ] || fail "$client is told of $told"
  as_user $client env NNHAL_SERVICE=binder:nnhal NNHAL_SERVICE_PID="$daemon" /tests/service --test-threads=1 --exact \
    --include-ignored $dumps >/tmp/dumps.log 2>&1 || fail "dumps as $client"
  echo "  $client: $view; dumps: $(sed -n 's/^test result: \([^;]*\);.*/\1/p' /tmp/dumps.log)"
  grep -q '^test result: ok. 3 passed' /tmp/dumps.log || fail "not every test ran"
done

step "operations are timed"
timeout 100 nnhal --service binder:nnhal bench "$model" --runs 10 --profile --json >/tmp/profile 2>/tmp/profile.log ||
  fail "nnhal bench --profile ended with status $?"
grep -q '"profile":{"runs":10,.*"missed":0[,}]' /tmp/profile || fail "not ten runs whole: $(head -c 2000 /tmp/profile)"
kernels=$(grep -o '"kernel":"[^"]*","median_ms":[0-9.]*[1-9]' /tmp/profile | wc -l)
[ "$kernels" -gt 0 ] || fail "no operation has a time: $(head -c 2000 /tmp/profile)"
echo "  $kernels operations with a kernel and a time"

step "the daemon is killed while a client runs"
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
wait_until 20 unregistered nnhal || fail "the service manager still lists the dead daemon"

step "a new daemon serves, with the same predictions"
start_daemon nnhal
predict nnhal /tmp/second
cmp /tmp/first /tmp/second || fail "the predictions changed"
stop_daemon
