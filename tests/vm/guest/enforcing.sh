# The driver under an enforcing SELinux policy: android/sepolicy within android/policy_check, which has the structure of a
# device's. Programs, data and users are where android/ has them. Nothing may be denied; what has to be denied is, too.
selinux=/sys/fs/selinux
android=/repo/android

# Gives files the context that follows.
label() {
  context=$1
  shift
  chcon "u:object_r:$context" "$@" || fail "cannot label $*"
}

# The context that $2 has in the file $1 of android/sepolicy.
context_of() {
  while read -r pattern context; do
    if echo "$2" | grep -qxE "$pattern"; then echo "${context#u:object_r:}"; fi
  done <"$android/sepolicy/$1"
}

# Runs a command as user $1 in context $2, as the process that starts apps does.
as() {
  user=$1 context=$2
  shift 2
  timeout 900 su -s /bin/sh -c 'printf %s "$0" >/proc/self/attr/current && cd && TMPDIR=$HOME exec "$@"' -- "$user" "$context" "$@"
}
app=s0:c123,c256,c512,c768
as_app() { as app "u:r:untrusted_app:$app" "$@"; }
as_isolated() { as isolated "u:r:isolated_app:$app" "$@"; }
as_shell() { as shell u:r:shell:s0 "$@"; }
as_system() { as system u:r:system_server:s0 "$@"; }
hub_answers() { as_shell /data/app/rsb_service list >/tmp/check.log 2>&1; }
registered() { as_shell /data/app/rsb_service check "$interface/$1" >/tmp/check.log 2>&1; }

load() { dd "if=/policies/$1" of=$selinux/load bs=1M 2>/tmp/dd.log || fail "the kernel does not take the policy $1"; }

# What was denied since it was last asked, into /tmp/denied.log.
collect_denials() {
  dmesg -c >/tmp/kernel
  if grep -E 'audit.*(lost|suppressed|backlog|exceeded)' /tmp/kernel; then fail "denials may have been lost"; fi
  grep 'avc: *denied' /tmp/kernel >/tmp/denied.log || true
}
none_denied() {
  collect_denials
  [ ! -s /tmp/denied.log ] || fail "$1 was denied something"
}
denied() {
  collect_denials
  grep -q "denied .*$1" /tmp/denied.log || fail "not denied: $1"
  echo "  denied: $(grep -o "{.*}.*$1" /tmp/denied.log | head -n 1 | sed 's/ for .* scontext=\(.*\) tcontext=/ \1 /')"
}

# Whether the policy lets context $1 do $4 of class $3 to $2. The service manager here asks nobody; a device's asks so.
allows() {
  exec 3<>$selinux/access
  printf '%s %s %s' "$1" "$2" "$(cat "$selinux/class/$3/index")" >&3
  read -r allowed rest <&3
  exec 3>&-
  [ $((0x$allowed >> ($(cat "$selinux/class/$3/perms/$4") - 1) & 1)) = 1 ]
}

# Starts the daemon as the .rc has it, and with the flags that follow; its program has it change its domain. Sets daemon.
start_as_init() {
  su -s /bin/sh -c 'exec "$0" "$@"' -- vendor_nnhal "$program" $arguments "$@" >>/tmp/nnhal.log 2>&1 &
  daemon=$!
}

# What a client makes of one image; the rest of the arguments are for nnhal run.
run_one() {
  client=$1
  shift
  "as_$client" /data/app/nnhal run --service binder:nnhal "$model" --input "$image" "$@" \
    >/tmp/run.log 2>/tmp/error.log
}
run_right() {
  run_one "$@" || { status=$? && collect_denials && fail "nnhal run $* ended with status $status"; }
  # All but the times.
  grep -vE '^(cache|compiled|ran) ' /tmp/run.log >/tmp/outputs
  [ -s /tmp/outputs ] || fail "nothing came out"
  [ -e /tmp/outputs.enforcing ] || cp /tmp/outputs /tmp/outputs.enforcing
  cmp /tmp/outputs.enforcing /tmp/outputs || fail "the outputs changed"
}

prepare() {
  # As a device's init has it: binder's threads take the priority of whom they work for.
  ulimit -e 40
  echo 0 >/proc/sys/kernel/printk_ratelimit
  set -- $(sed -n 's/^service [^ ]* //p' $android/android.hardware.neuralnetworks-service.nnhal.rc)
  program=$1 arguments=${*#"$1"}
  mkdir -p "${program%/*}" /system/bin
  mv /bin/nnhald "$program"
  mv /bin/rsb_hub /system/bin/servicemanager
  cp /bin/busybox "${program%/*}/busybox"
  mount -t tmpfs -o mode=755 data /data || fail "no tmpfs"
  mkdir -p /data/app /data/data/app /data/local/tmp /data/system /data/vendor/nnhal
  mv /bin/nnhal /bin/rsb_service /data/app
  # The driver maps it. What the host shares has one label for its files and for its file system, as nothing on a device has.
  cp "$model" /data/app
  model=/data/app/${model##*/}
  chown app:app /data/data/app
  chown shell:shell /data/local/tmp
  chown system:system /data/system
  chown vendor_nnhal:vendor_nnhal /data/vendor/nnhal
  chmod 700 /data/data/app /data/vendor/nnhal

  load policy
  # It began as the kernel, and from here on it is init.
  printf u:r:init:s0 >/proc/self/attr/current || fail "cannot become init"
  label null_device:s0 /dev/null
  label zero_device:s0 /dev/zero
  label random_device:s0 /dev/random /dev/urandom
  for device in binder hwbinder vndbinder; do label ${device}_device:s0 /dev/$device; done
  if [ -e /dev/dma_heap ]; then
    label dmabuf_heap_device:s0 /dev/dma_heap
    label dmabuf_system_heap_device:s0 /dev/dma_heap/system
  fi
  label toolbox_exec:s0 /bin/busybox
  for directory in /lib /lib64 /usr/lib; do [ ! -e $directory ] || label system_lib_file:s0 -R $directory; done
  label system_file:s0 -R /system
  label servicemanager_exec:s0 /system/bin/servicemanager
  label vendor_file:s0 -R /vendor
  label "$(context_of file_contexts "$program")" "$program" "${program%/*}/busybox"
  label system_data_root_file:s0 /data
  label system_data_file:s0 /data/data /data/local /data/system
  label app_data_file:$app /data/data/app
  label shell_data_file:s0 /data/local/tmp
  label apk_data_file:s0 -R /data/app
  label vendor_data_file:s0 /data/vendor
  label "$(context_of file_contexts /data/vendor/nnhal)" /data/vendor/nnhal
  # From here on what is written to is a log.
  printf u:object_r:guest_log_file:s0 >/proc/self/attr/fscreate
  rm -f /tmp/*.log
}

# Asks for dumps as $1, and whether each is given or refused as that one's uid has it.
dump_as() {
  NNHAL_SERVICE=binder:nnhal NNHAL_SERVICE_PID=$daemon "as_$1" /tests/service --test-threads=1 --exact --include-ignored \
    dumps::a_dump_is_for_who_may_see_all >/tmp/tests.log 2>&1
}

check_enforcing() {
  step "a policy is loaded and enforcing"
  kill "$hub"
  wait "$hub"
  prepare
  dmesg -c >/tmp/kernel
  if grep 'not defined in policy' /tmp/kernel; then fail "the policy lacks what this kernel has"; fi
  echo 1 >$selinux/enforce
  [ "$(cat $selinux/enforce)" = 1 ] || fail "not enforcing"
  /system/bin/servicemanager --insecure-allow-all >/tmp/servicemanager.log 2>&1 &
  hub=$!
  # Asking takes a second or so under emulation.
  wait_until 3 hub_answers || fail "the service manager does not answer"
  start_as_init
  wait_until 3 registered nnhal || fail "the daemon did not register"
  for process in "$hub servicemanager" "$daemon hal_neuralnetworks_nnhal"; do
    context=$(tr -d '\0\n' <"/proc/${process% *}/attr/current")
    [ "$context" = "u:r:${process#* }:s0" ] || fail "a process is $context, not ${process#* }"
    echo "  ${process#* } is in its domain, user $(stat -c %u "/proc/${process% *}")"
  done
  service=u:object_r:$(context_of service_contexts $interface/nnhal)
  allows "$(cat /proc/$daemon/attr/current)" "$service" service_manager add || fail "the daemon may not register"
  for client in untrusted_app:$app shell:s0 system_server:s0; do
    allows "u:r:$client" "$service" service_manager find || fail "$client may not find the daemon"
  done
  if allows "u:r:isolated_app:$app" "$service" service_manager find; then fail "an isolated app may find the daemon"; fi
  none_denied "the start"

  image=$(ls "$images"/*.png | head -n 1)
  for client in app shell system; do
    step "all modes, as $client"
    for mode in sync fenced burst reusable fmq; do run_right "$client" --runs 3 --mode $mode; done
    # The shell's files are its own, the system's a core domain's: a HAL may use those of apps and the shell alone.
    case $client in app) cache=/data/data/app/cache ;; shell) cache=/data/local/tmp/cache ;; *) cache= ;; esac
    if [ -n "$cache" ]; then
      for outcome in miss hit; do
        run_right "$client" --cache "$cache"
        grep -q "^cache $outcome" /tmp/run.log || fail "wanted a cache $outcome, got: $(grep ^cache /tmp/run.log)"
      done
    fi
    none_denied "$client"
  done

  # What handles most kinds of memory and fences. Clients' fences are sync files, or the daemon's own: a socket of an app's
  # is none. A system_server's files are none of a HAL's, so no caches there.
  tests="memory_domains::copies_reach_every_kind_of_pool memory_domains::executions_initialise_buffers
    memory_domains::a_buffer_passes_from_one_fenced_execution_to_the_next fmq_burst::
    fences::a_loop_runs_within_the_call_that_need_not_wait"
  caches="cache::a_model_comes_back_from_its_cache cache::two_files_are_needed
    cache::a_changed_model_cache_or_token_is_a_general_failure"
  sync_files=
  if [ -e /dev/dri/card0 ]; then
    sync_files=sync_files::sync_files_are_waited_for
    label gpu_device:s0 -R /dev/dri
    chmod 666 /dev/dri/card0
  fi
  for client in app system; do
    step "memory domains, fences, queues, caches, as $client"
    case $client in app) filters="$tests $caches $sync_files" ;; *) filters=$tests ;; esac
    NNHAL_SERVICE=binder:nnhal NNHAL_SERVICE_PID=$daemon as_$client /tests/service --test-threads=1 --include-ignored $filters \
      >/tmp/tests.log 2>&1 || { collect_denials; fail "the tests as $client"; }
    grep -a '^test result: ok. [1-9]' /tmp/tests.log | sed 's/^test result: /  /'
    none_denied "$client"
  done

  step "dumps, as the shell; an app cannot even hand its pipe over"
  dump_as shell || { collect_denials; fail "dumps as the shell"; }
  grep -a '^test result: ok. [1-9]' /tmp/tests.log | sed 's/^test result: /  /'
  none_denied "a dump"
  if dump_as app; then fail "an app's pipe gets to the daemon"; fi
  denied "scontext=u:r:hal_neuralnetworks_nnhal:s0 tcontext=u:r:untrusted_app:$app tclass=fifo_file"

  step "conformance, as an app"
  if [ ! -e /vts ]; then
    skip "no corpus"
  else
    as_app /data/app/nnhal --service binder:nnhal conformance /vts --filter '^add$' \
      >/tmp/conformance.log 2>&1 || { collect_denials; fail "the conformance suites"; }
    grep -E '^([a-z_]+:|  )' /tmp/conformance.log | sed 's/^/  /'
    none_denied "conformance"
  fi
  ended "$daemon" && fail "the daemon ended"

  step "what has to be denied is"
  run_right app --output-dir /data/data/app
  file=$(ls /data/data/app/*.npy | head -n 1)
  # By its user and mode anybody may.
  chmod 755 /data/data/app
  if "${program%/*}/busybox" cat "$file" >/tmp/cat.log 2>&1; then fail "the daemon's domain opens a file of an app"; fi
  denied "scontext=u:r:hal_neuralnetworks_nnhal:s0 .*app_data_file:$app tclass=dir"
  if run_one isolated; then fail "an isolated app is served"; fi
  denied "scontext=u:r:isolated_app:$app tcontext=u:r:hal_neuralnetworks_nnhal:s0 tclass=binder"

  step "without the rule for fences there are none"
  load no_fences
  run_right app --mode sync
  none_denied "an execution without a fence"
  if run_one app --mode fenced; then fail "there is a fence"; fi
  denied "scontext=u:r:untrusted_app:$app tcontext=u:r:hal_neuralnetworks_nnhal:s0 tclass=unix_stream_socket"

  step "without the rule for clients' shared memory there is none"
  load no_memory
  for client in app system; do
    if run_one $client; then fail "there is shared memory"; fi
    denied "scontext=u:r:hal_neuralnetworks_nnhal:s0 .*tmpfs:s0.* tclass=file"
  done

  step "without the rule for the shell's pipes it has no dumps"
  load no_dumps
  if dump_as shell; then fail "the shell has a dump"; fi
  denied "scontext=u:r:hal_neuralnetworks_nnhal:s0 tcontext=u:r:shell:s0 tclass=fifo_file"
  load policy
  run_right app --mode fenced
  none_denied "the app again"
  stop_daemon

  step "the backend in a process of its own, for which there is a policy beside the other"
  start_as_init --backend-process
  wait_until 20 ended "$daemon" || fail "the daemon started a program in its own domain"
  denied "scontext=u:r:hal_neuralnetworks_nnhal:s0 .*hal_neuralnetworks_nnhal_exec:s0 tclass=file"
  load backend_process
  start_as_init --backend-process
  wait_until 3 registered nnhal || { collect_denials; fail "the daemon did not register"; }
  # A process that ends meanwhile makes it a failure even where the one is found.
  backend=$(grep -sl "^PPid:[^0-9]*$daemon\$" /proc/[0-9]*/status) || true
  [ -n "$backend" ] || fail "there is no process of the backend's"
  context=$(tr -d '\0\n' <"${backend%/*}/attr/current")
  [ "$context" = u:r:hal_neuralnetworks_nnhal_backend:s0 ] || fail "the backend's process is $context"
  for client in app shell system; do
    for mode in sync fenced burst reusable fmq; do run_right "$client" --runs 3 --mode $mode; done
  done
  run_right app --cache /data/data/app/cache
  none_denied "the backend's process"
  stop_daemon
  echo 0 >$selinux/enforce
}

if ! grep -qw selinuxfs /proc/filesystems; then
  skip "this kernel has no SELinux"
else
  mount -t selinuxfs selinuxfs $selinux || fail "no selinuxfs"
  # Without it, whoever labels files takes SELinux for absent.
  mkdir -p /etc/selinux && : >/etc/selinux/config
  check_enforcing
fi
