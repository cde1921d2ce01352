# Serves over the kernel's binder, predicts, kills the daemon, starts over.
step "a client finds no driver"
timeout 30 nnhal run --service binder:nnhal "$model" --input "$images" >/tmp/run.log 2>/tmp/error.log
one_line_error $? /tmp/error.log

step "the daemon registers, the tool predicts through it"
start_daemon nnhal
predict nnhal /tmp/first

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
