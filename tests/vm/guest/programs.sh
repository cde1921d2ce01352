# The tests that can be aimed at a driver in another process, aimed at the daemon over the kernel's binder.

start_daemon tests --data /tmp/data
for module in memory_domains cache paths fmq_burst; do
  step "$module"
  run_tests "service::$module"
done

step "caches of whole networks"
if [ ! -e /models ]; then
  skip "no models"
else
  export NNHAL_MODELS=/models NNHAL_ROUNDS=100
  case $scope in
    whole) run_tests service::cache_models --include-ignored ;;
    # Under emulation each execution of a network takes seconds: the smaller one alone.
    *)
      run_tests service --include-ignored cache_models::a_quantised_network_comes_back_whatever_the_files_held
      ;;
  esac
fi

step "another process's tokens, another user's cache"
run_tests other_processes --include-ignored

step "memory that vanishes"
case $scope in whole) export NNHAL_EXECUTIONS=1000 ;; *) export NNHAL_EXECUTIONS=100 ;; esac
run_tests service::vanishing_memory --nocapture
grep -o 'executions, copies.*' /tmp/vanishing_memory.log | sed 's/^/  /'

if [ "$scope" = whole ]; then
  step "clients that are killed"
  export NNHAL_CLIENT_DEATHS=120
  run_tests client_deaths --nocapture
  grep -o 'threads, descriptors.*' /tmp/client_deaths.log | sed 's/^/  /'
fi
stop_daemon
