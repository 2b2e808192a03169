{{/* The settings of every application, as JSON `{"settings": ...}`: what the values say, and
     where the keys lie; or the path of the file that a Secret brings. */}}
{{- define "headpond.settings" -}}
{{- $settings := deepCopy .Values.settings -}}
{{- if .Values.settingsSecret.name -}}
{{- $settings = printf "/etc/headpond/settings/%s" .Values.settingsSecret.key -}}
{{- else if include "headpond.hasKeys" . -}}
{{- $_ := set $settings "keys_file" (printf "/etc/headpond/keys/%s" .Values.keys.file) -}}
{{- end -}}
{{ toJson (dict "settings" $settings) }}
{{- end -}}

{{- define "headpond.jobStore" -}}
{{- $store := deepCopy .Values.jobs.store -}}
{{- if and .Values.postgresql.enabled (not $store.database) -}}
{{- $host := printf "%s-postgresql" .Release.Name | trunc 52 | trimSuffix "-" -}}
{{- $_ := set $store "database" (printf "postgresql://%s@%s:5432/%s" .Values.postgresql.user $host .Values.postgresql.database) -}}
{{- end -}}
{{ toJson $store }}
{{- end -}}

{{/* Aliases of the router: every model's own, then those of the values. */}}
{{- define "headpond.aliases" -}}
{{- $aliases := dict -}}
{{- range .Values.models -}}
{{- $_ := set $aliases (.alias | default .name) (dict .name 100) -}}
{{- end -}}
{{- range $alias, $weights := .Values.router.aliases -}}
{{- $_ := set $aliases $alias $weights -}}
{{- end -}}
{{ toJson $aliases }}
{{- end -}}

{{/* Replicas of a deployment, and how they are replaced: dict "root" "of". */}}
{{- define "headpond.replicas" -}}
{{- $deployment := dict "max_surge_percent" (ternary .root.Values.rollout.maxSurgePercent 0 .root.Values.autoscaler.enabled) -}}
{{- if .of.autoscaling -}}
{{- $_ := set $deployment "autoscaling_config" .of.autoscaling -}}
{{- else -}}
{{- $_ := set $deployment "num_replicas" (.of.replicas | default 1) -}}
{{- end -}}
{{ toJson $deployment }}
{{- end -}}

{{/* An application's entry for its one deployment: dict "name" "options" "actor" "group". */}}
{{- define "headpond.deployment" -}}
{{- $actor := set .actor "label_selector" (dict "headpond/group" .group) -}}
{{ toJson (merge (dict "name" .name "ray_actor_options" $actor) .options) }}
{{- end -}}

{{/* CPUs that Ray reserves for a replica: all of its pod when that is its own, so that there
     is one for each pod. dict "entry" "shared". */}}
{{- define "headpond.cpus" -}}
{{- if .entry.pods }}{{ .entry.pods.resources.cpu }}{{ else }}{{ .shared }}{{ end -}}
{{- end -}}

{{/* serveConfigV2, the same file that `headpond up` and `serve deploy` take. */}}
{{- define "headpond.serveConfig" -}}
{{- $root := . -}}
{{- $groups := dict -}}
{{- range (include "headpond.groups" . | fromJson).groups }}{{ $_ := set $groups .name . }}{{ end -}}
{{- $settings := (include "headpond.settings" . | fromJson).settings -}}
{{- $applications := list -}}

{{- $args := dict "settings" $settings -}}
{{- if .Values.jobs.enabled -}}
{{- $_ := set $args "jobs" (include "headpond.jobStore" . | fromJson) -}}
{{- end -}}
{{- $options := include "headpond.replicas" (dict "root" . "of" .Values.router) | fromJson -}}
{{- $_ := set $options "user_config" (dict "aliases" (include "headpond.aliases" . | fromJson)) -}}
{{- $group := include "headpond.groupName" (dict "entry" .Values.router "own" "router") -}}
{{- $cpus := include "headpond.cpus" (dict "entry" .Values.router "shared" .Values.router.cpus) | float64 -}}
{{- $deployment := include "headpond.deployment" (dict "name" "Router" "options" $options "actor" (dict "num_cpus" $cpus) "group" $group) | fromJson -}}
{{- $applications = append $applications (dict "name" "router" "route_prefix" "/" "import_path" "headpond.router:build" "args" $args "deployments" (list $deployment)) -}}

{{- if .Values.jobs.enabled -}}
{{- $args := merge (dict "store" (include "headpond.jobStore" . | fromJson) "settings" $settings) .Values.jobs.args -}}
{{- $group := include "headpond.groupName" (dict "entry" .Values.jobs "own" "jobs") -}}
{{- $cpus := include "headpond.cpus" (dict "entry" .Values.jobs "shared" .Values.jobs.cpus) | float64 -}}
{{- $deployment := include "headpond.deployment" (dict "name" "JobWorker" "options" dict "actor" (dict "num_cpus" $cpus) "group" $group) | fromJson -}}
{{- $applications = append $applications (dict "name" "jobs" "route_prefix" nil "import_path" "headpond.jobs.deployment:build" "args" $args "deployments" (list $deployment)) -}}
{{- end -}}

{{- range .Values.models -}}
{{- $alias := .alias | default .name -}}
{{- $group := include "headpond.groupName" (dict "entry" . "own" .name) -}}
{{- $pods := (index $groups $group).pods -}}
{{- $device := include "headpond.device" (dict "model" . "pods" $pods) -}}
{{- $bundle := include "headpond.bundle" (dict "root" $root "name" .bundle) | fromJson -}}
{{- $args := merge (dict "bundle" $bundle.path "alias" $alias "settings" $settings "device" $device) (.args | default dict) -}}
{{- $modelArgs := .args | default dict -}}
{{- $devices := $modelArgs.tensor_parallel | default 1 | int -}}
{{- $cpus := include "headpond.cpus" (dict "entry" . "shared" (mul $devices ($modelArgs.threads | default 1))) | float64 -}}
{{- $actor := dict "num_cpus" $cpus "num_gpus" (ternary 0 $devices (eq $device "cpu")) -}}
{{- $options := include "headpond.replicas" (dict "root" $root "of" .) | fromJson -}}
{{- $deployment := include "headpond.deployment" (dict "name" "Model" "options" $options "actor" $actor "group" $group) | fromJson -}}
{{- $applications = append $applications (dict "name" .name "route_prefix" (printf "/models/%s" $alias) "import_path" "headpond.deployment:build" "args" $args "deployments" (list $deployment)) -}}
{{- end -}}

{{ toYaml (dict "proxy_location" "EveryNode" "http_options" (dict "host" "0.0.0.0" "port" 8000) "applications" $applications) }}
{{- end -}}
