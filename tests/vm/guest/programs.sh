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
    whole) run_tests service::cache_models --nocapture ;;
    # Under emulation each execution of a network takes seconds: the smaller one alone.
    *)
      mkdir -p /tmp/models
      ln -sf /models/mobilenet_v2_1.0_224_int8.tflite /tmp/models/
      export NNHAL_MODELS=/tmp/models
      run_tests service --nocapture cache_models::networks_come_back_whatever_the_files_held
      ;;
  esac
  sed -n 's/^.*SKIPPED/  SKIPPED/p' /tmp/service.log /tmp/cache_models.log 2>/dev/null || true
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
