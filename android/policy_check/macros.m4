define(`create_dir_perms', `{ create reparent rename rmdir setattr open getattr read search ioctl lock watch add_name remove_name write }')
define(`create_file_perms', `{ create rename setattr unlink open getattr read write append ioctl lock map watch }')
define(`global_capability_class_set', `{ capability cap_userns }')
define(`hal_server_domain', `typeattribute $1 halserverdomain;
typeattribute $1 $2_server;
typeattribute $1 $2;')
define(`init_daemon_domain', `allow init $1_exec:file { getattr open read execute };
allow init $1:process transition;
allow $1 $1_exec:file { entrypoint open read execute getattr map };
type_transition init $1_exec:process $1;')
