# The conformance suites between two processes, whole or a few models of each.
suites="general dynamic_shape fenced burst memory_domain quant_coupling deadline infinite_loop cts cts_expect_failure
  validation"
# Some of every suite; none with many inputs, whose validation alone takes minutes under emulation.
sample='^(add|conv_quant8|concat_float_1|topk_v2|embedding_lookup|while_fib_n_1_unused_output|while_infinite_loop'
sample="$sample|if_no_value|if_simple_unknown_dimension_false)\$"

# Runs suites, a list with commas, over the models that match $2. Each must have passed, and over queues if it can be.
conform() {
  timeout 14000 nnhal --service binder:conformance conformance /vts --filter "$2" --suite "$1" \
    >/tmp/conformance.log 2>/tmp/conformance.errors.log || {
    grep -v 'passed, 0 failed' /tmp/conformance.log | head -n 50
    fail "the conformance suites"
  }
  grep -E '^([a-z_]+:|  |left out)' /tmp/conformance.log | sed 's/^/  /'
  for suite in $(echo "$1" | tr , ' '); do
    grep -q "^$suite: [1-9][0-9]* passed, 0 failed, 0 skipped" /tmp/conformance.log || fail "$suite: nothing passed"
    case $suite in general | quant_coupling)
      grep -q "^  $suite executed: .*fmq [1-9]" /tmp/conformance.log || fail "$suite: not over queues" ;;
    esac
  done
  ended "$daemon" && fail "the daemon ended"
}

step "conformance"
if [ ! -e /vts ]; then
  skip "no corpus"
else
  start_daemon conformance
  case $scope in
    whole) for suite in $suites; do conform "$suite" .; done ;;
    # Once for all suites, as reading the corpus takes longer than a sample of it.
    *) conform "$(echo $suites | tr ' ' ,)" "$sample" ;;
  esac
  stop_daemon
fi
