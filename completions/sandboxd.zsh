#compdef sandboxd

autoload -U is-at-least

_sandboxd() {
    typeset -A opt_args
    typeset -a _arguments_options
    local ret=1

    if is-at-least 5.2; then
        _arguments_options=(-s -S -C)
    else
        _arguments_options=(-s -C)
    fi

    local context curcontext="$curcontext" state line
    _arguments "${_arguments_options[@]}" : \
'--config=[Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)]:FILE:_default' \
'--host=[Listen on this address (SANDBOXD_HOST)]:ADDRESS:_default' \
'--port=[Listen on this port; 0 lets the system choose (SANDBOXD_PORT)]:PORT:_default' \
'--state-dir=[Keep the store and the key here (SANDBOXD_STATE_DIR)]:DIR:_default' \
'--runtime-dir=[Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)]:DIR:_default' \
'--workspace-root=[Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)]:DIR:_default' \
'--docker-host=[Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)]:unix://PATH:_default' \
'--log=[Log this much\: a level or directives (SANDBOXD_LOG)]:LEVEL:_default' \
'--log-format=[Log in this form\: text or json (SANDBOXD_LOG_FORMAT)]:FORMAT:_default' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'-V[Print version]' \
'--version[Print version]' \
":: :_sandboxd_commands" \
"*::: :->sandboxd" \
&& ret=0
    case $state in
    (sandboxd)
        words=($line[1] "${words[@]}")
        (( CURRENT += 1 ))
        curcontext="${curcontext%:*:*}:sandboxd-command-$line[1]:"
        case $line[1] in
            (check)
_arguments "${_arguments_options[@]}" : \
'--config=[Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)]:FILE:_default' \
'--host=[Listen on this address (SANDBOXD_HOST)]:ADDRESS:_default' \
'--port=[Listen on this port; 0 lets the system choose (SANDBOXD_PORT)]:PORT:_default' \
'--state-dir=[Keep the store and the key here (SANDBOXD_STATE_DIR)]:DIR:_default' \
'--runtime-dir=[Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)]:DIR:_default' \
'--workspace-root=[Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)]:DIR:_default' \
'--docker-host=[Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)]:unix://PATH:_default' \
'--log=[Log this much\: a level or directives (SANDBOXD_LOG)]:LEVEL:_default' \
'--log-format=[Log in this form\: text or json (SANDBOXD_LOG_FORMAT)]:FORMAT:_default' \
'-h[Print help]' \
'--help[Print help]' \
&& ret=0
;;
(verify)
_arguments "${_arguments_options[@]}" : \
'--config=[Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)]:FILE:_default' \
'--host=[Listen on this address (SANDBOXD_HOST)]:ADDRESS:_default' \
'--port=[Listen on this port; 0 lets the system choose (SANDBOXD_PORT)]:PORT:_default' \
'--state-dir=[Keep the store and the key here (SANDBOXD_STATE_DIR)]:DIR:_default' \
'--runtime-dir=[Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)]:DIR:_default' \
'--workspace-root=[Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)]:DIR:_default' \
'--docker-host=[Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)]:unix://PATH:_default' \
'--log=[Log this much\: a level or directives (SANDBOXD_LOG)]:LEVEL:_default' \
'--log-format=[Log in this form\: text or json (SANDBOXD_LOG_FORMAT)]:FORMAT:_default' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
&& ret=0
;;
(backup)
_arguments "${_arguments_options[@]}" : \
'--config=[Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)]:FILE:_default' \
'--host=[Listen on this address (SANDBOXD_HOST)]:ADDRESS:_default' \
'--port=[Listen on this port; 0 lets the system choose (SANDBOXD_PORT)]:PORT:_default' \
'--state-dir=[Keep the store and the key here (SANDBOXD_STATE_DIR)]:DIR:_default' \
'--runtime-dir=[Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)]:DIR:_default' \
'--workspace-root=[Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)]:DIR:_default' \
'--docker-host=[Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)]:unix://PATH:_default' \
'--log=[Log this much\: a level or directives (SANDBOXD_LOG)]:LEVEL:_default' \
'--log-format=[Log in this form\: text or json (SANDBOXD_LOG_FORMAT)]:FORMAT:_default' \
'--with-key[Have the key of all session tokens in it, to restore it on another host; whoever reads it can use every session]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
'::file -- Where it goes; standard output if not given, or -:_files' \
&& ret=0
;;
(restore)
_arguments "${_arguments_options[@]}" : \
'--config=[Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)]:FILE:_default' \
'--host=[Listen on this address (SANDBOXD_HOST)]:ADDRESS:_default' \
'--port=[Listen on this port; 0 lets the system choose (SANDBOXD_PORT)]:PORT:_default' \
'--state-dir=[Keep the store and the key here (SANDBOXD_STATE_DIR)]:DIR:_default' \
'--runtime-dir=[Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)]:DIR:_default' \
'--workspace-root=[Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)]:DIR:_default' \
'--docker-host=[Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)]:unix://PATH:_default' \
'--log=[Log this much\: a level or directives (SANDBOXD_LOG)]:LEVEL:_default' \
'--log-format=[Log in this form\: text or json (SANDBOXD_LOG_FORMAT)]:FORMAT:_default' \
'--force[Rename a store that is there, instead of refusing]' \
'--void-tokens[Give every session a new token, where the key of their tokens is lost]' \
'-h[Print help (see more with '\''--help'\'')]' \
'--help[Print help (see more with '\''--help'\'')]' \
':file -- The backup:_files' \
&& ret=0
;;
(store-probe)
_arguments "${_arguments_options[@]}" : \
'--config=[Read settings from a file of NAME=VALUE lines (SANDBOXD_CONFIG)]:FILE:_default' \
'--host=[Listen on this address (SANDBOXD_HOST)]:ADDRESS:_default' \
'--port=[Listen on this port; 0 lets the system choose (SANDBOXD_PORT)]:PORT:_default' \
'--state-dir=[Keep the store and the key here (SANDBOXD_STATE_DIR)]:DIR:_default' \
'--runtime-dir=[Keep the sockets of sandboxes here (SANDBOXD_RUNTIME_DIR)]:DIR:_default' \
'--workspace-root=[Keep the files of sessions here (SANDBOXD_WORKSPACE_ROOT)]:DIR:_default' \
'--docker-host=[Reach the Docker Engine at this unix socket (SANDBOXD_DOCKER_HOST)]:unix://PATH:_default' \
'--log=[Log this much\: a level or directives (SANDBOXD_LOG)]:LEVEL:_default' \
'--log-format=[Log in this form\: text or json (SANDBOXD_LOG_FORMAT)]:FORMAT:_default' \
'-h[Print help]' \
'--help[Print help]' \
':dir -- The directory of the store:_files' \
'::commits -- The number of the last commit that it has to hold:_default' \
&& ret=0
;;
        esac
    ;;
esac
}

(( $+functions[_sandboxd_commands] )) ||
_sandboxd_commands() {
    local commands; commands=(
'check:Check the configuration and print what holds and where it came from' \
'verify:Check store, engine and disk while no daemon runs, and print what was found' \
'backup:Write a backup of the store, whether a daemon runs or not' \
'restore:Put a backup in the place of the store while no daemon runs' \
'store-probe:Open a store and close it again, in a process that may hang or die of it' \
    )
    _describe -t commands 'sandboxd commands' commands "$@"
}
(( $+functions[_sandboxd__subcmd__backup_commands] )) ||
_sandboxd__subcmd__backup_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxd backup commands' commands "$@"
}
(( $+functions[_sandboxd__subcmd__check_commands] )) ||
_sandboxd__subcmd__check_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxd check commands' commands "$@"
}
(( $+functions[_sandboxd__subcmd__restore_commands] )) ||
_sandboxd__subcmd__restore_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxd restore commands' commands "$@"
}
(( $+functions[_sandboxd__subcmd__store-probe_commands] )) ||
_sandboxd__subcmd__store-probe_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxd store-probe commands' commands "$@"
}
(( $+functions[_sandboxd__subcmd__verify_commands] )) ||
_sandboxd__subcmd__verify_commands() {
    local commands; commands=()
    _describe -t commands 'sandboxd verify commands' commands "$@"
}

if [ "$funcstack[1]" = "_sandboxd" ]; then
    _sandboxd "$@"
else
    compdef _sandboxd sandboxd
fi
