# The conformance suites between two processes, whole or a few models of each.
suites="general dynamic_shape fenced burst memory_domain quant_coupling deadline infinite_loop cts cts_expect_failure
  validation"
# Some of every suite; none with many inputs, whose validation alone takes minutes under emulation.
sample='^(add|conv_quant8|concat_float_1|topk_v2|embedding_lookup|while_fib_n_1_unused_output|while_infinite_loop'
sample="$sample|if_no_value|if_simple_unknown_dimension_false)\$"

step "conformance"
if [ ! -e /vts ]; then
  skip "no corpus"
else
  start_daemon conformance
  case $scope in whole) filter=. ;; *) filter=$sample ;; esac
  # Once for all suites, as reading the corpus takes longer than a sample of it.
  timeout 14000 nnhal --service binder:conformance conformance /vts --filter "$filter" \
    --suite "$(echo $suites | tr ' ' ,)" >/tmp/conformance.log 2>/tmp/conformance.errors.log || {
    grep -v 'passed, 0 failed' /tmp/conformance.log | head -n 50
    fail "the conformance suites"
  }
  tail -n 14 /tmp/conformance.log | sed 's/^/  /'
  grep -q '^executed by:.* fmq' /tmp/conformance.log || fail "not over queues"
  for suite in $suites; do
    grep -q "^$suite: [1-9][0-9]* passed, 0 failed" /tmp/conformance.log || fail "$suite: nothing passed"
  done
  ended "$daemon" && fail "the daemon ended"
  stop_daemon
fi
