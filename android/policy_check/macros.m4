dnl Permissions by their purpose, and rules that come together: those that vendors write their policy with.
define(`category_range', `category c$1;
ifelse($1, $2, , `category_range(incr($1), $2)')')
define(`numbered_categories', `category_range(0, 1023)')
define(`r_file_perms', `{ getattr open read ioctl lock map watch watch_reads }')
define(`w_file_perms', `{ open append write lock map }')
define(`rw_file_perms', `{ r_file_perms w_file_perms }')
define(`x_file_perms', `{ getattr execute execute_no_trans map }')
define(`create_file_perms', `{ create rename setattr unlink rw_file_perms }')
define(`r_dir_perms', `{ open getattr read search ioctl lock watch watch_reads }')
define(`create_dir_perms', `{ create reparent rename rmdir setattr r_dir_perms write add_name remove_name }')
define(`create_socket_perms', `{
  create ioctl read getattr write setattr lock append bind connect getopt setopt shutdown map
}')
define(`global_capability_class_set', `{ capability cap_userns }')
define(`file_class_set', `{ file lnk_file chr_file blk_file sock_file fifo_file }')
define(`r_dir_file', `allow $1 $2:dir r_dir_perms;
allow $1 $2:{ file lnk_file } r_file_perms;')
define(`domain_auto_trans', `allow $1 $2:file { getattr open read execute map };
allow $1 $3:process { transition siginh rlimitinh };
allow $3 $2:file { entrypoint open read execute getattr map };
ifelse($1, `init', `', `allow $3 $1:process sigchld;')
dontaudit $1 $3:process noatsecure;
type_transition $1 $2:process $3;')
define(`init_daemon_domain', `domain_auto_trans(init, $1_exec, $1)')
define(`tmpfs_domain', `type_transition $1 tmpfs:file $1_tmpfs;
allow $1 $1_tmpfs:file { read write getattr map };')
define(`app_domain', `typeattribute $1 appdomain;
type_transition $1 tmpfs:file appdomain_tmpfs;')
define(`hal_attribute', `attribute hal_$1;
attribute hal_$1_client;
attribute hal_$1_server;')
define(`hal_server_domain', `typeattribute $1 halserverdomain;
typeattribute $1 $2_server;
typeattribute $1 $2;')
define(`hal_client_domain', `typeattribute $1 halclientdomain;
typeattribute $1 $2_client;')
define(`with_native_coverage', `ifelse(native_coverage, `true', `$1')')
define(`crash_dump_fallback', `allow $1 tombstoned_crash_socket:sock_file write;
allow $1 tombstoned:unix_stream_socket connectto;
allow $1 { dumpstate incidentd tombstoned }:fd use;
allow $1 { dumpstate incidentd system_server }:fifo_file { append write };
allow $1 { anr_data_file tombstone_data_file }:file append;')
define(`binder_use', `allow $1 servicemanager:binder { call transfer };
allow servicemanager $1:binder { call transfer };
allow servicemanager $1:dir search;
allow servicemanager $1:file { read open };
allow servicemanager $1:process getattr;')
define(`binder_call', `allow $1 $2:binder { call transfer };
allow $2 $1:binder transfer;
allow $1 $2:fd use;')
