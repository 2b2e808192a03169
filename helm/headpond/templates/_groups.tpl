{{/*
Worker groups, as JSON `{"groups": [...]}`: the router's and the job workers' own pods, the
pools, and the models' own pods. KubeRay takes a group that is appended into the running
cluster; so models come last, and keep the order of the values.
*/}}
{{- define "headpond.groups" -}}
{{- $groups := list -}}
{{- if .Values.router.pods -}}
{{- $groups = append $groups (include "headpond.ownGroup" (dict "root" . "name" "router" "of" .Values.router) | fromJson) -}}
{{- end -}}
{{- if and .Values.jobs.enabled .Values.jobs.pods -}}
{{- $workers := dict "pods" .Values.jobs.pods "replicas" (.Values.jobs.args.workers | default 1) -}}
{{- $groups = append $groups (include "headpond.ownGroup" (dict "root" . "name" "jobs" "of" $workers) | fromJson) -}}
{{- end -}}
{{- range .Values.pools -}}
{{- $least := ternary .minPods .maxPods $.Values.autoscaler.enabled -}}
{{- $groups = append $groups (dict "name" .name "pods" .pods "min" $least "max" .maxPods) -}}
{{- end -}}
{{- range .Values.models -}}
{{- if .pods -}}
{{- $groups = append $groups (include "headpond.ownGroup" (dict "root" $ "name" .name "of" .) | fromJson) -}}
{{- end -}}
{{- end -}}
{{ toJson (dict "groups" $groups) }}
{{- end -}}

{{/* One pod for each replica, and with the autoscaler room for those that replace others. */}}
{{- define "headpond.ownGroup" -}}
{{- $scaling := .of.autoscaling | default dict -}}
{{- $fixed := .of.replicas | default 1 -}}
{{- $least := int (ternary $scaling.min_replicas $fixed (hasKey $scaling "min_replicas")) -}}
{{- $most := int ($scaling.max_replicas | default $fixed) -}}
{{- if .root.Values.autoscaler.enabled -}}
{{- $surge := divf (mul $most (int .root.Values.rollout.maxSurgePercent)) 100 | ceil | int -}}
{{- $most = add $most $surge -}}
{{- else -}}
{{- $least = $most -}}
{{- end -}}
{{ toJson (dict "name" .name "pods" .of.pods "min" $least "max" $most) }}
{{- end -}}

{{/* The group that an entry runs in, by name: dict "entry" "own" (the name of its own group). */}}
{{- define "headpond.groupName" -}}
{{- if .entry.pods }}{{ .own }}{{ else }}{{ .entry.pool }}{{ end -}}
{{- end -}}

{{/* `cuda` where a model's pods have a GPU and its args don't say otherwise. */}}
{{- define "headpond.device" -}}
{{- $args := .model.args | default dict -}}
{{- if $args.device -}}
{{ $args.device }}
{{- else if .pods.gpu -}}
cuda
{{- else -}}
cpu
{{- end -}}
{{- end -}}

{{/* A bundle as the chart knows it, JSON: workload, staticBytes, and its path in the pods;
     an empty object when there is none of that name. */}}
{{- define "headpond.bundle" -}}
{{- $catalogue := include "headpond.catalogue" .root | fromYaml -}}
{{- $given := index .root.Values.bundles .name -}}
{{- if and $given $given.manifest -}}
{{- $symbols := (index $catalogue.workloads $given.manifest.workload | default dict).staticBytes | default list -}}
{{- $bytes := int64 0 -}}
{{- range $symbols -}}
{{- $bytes = add $bytes (int64 (index $given.manifest.model . | default 0)) -}}
{{- end -}}
{{ toJson (dict "workload" $given.manifest.workload "staticBytes" (toString $bytes) "path" (printf "/etc/headpond/bundles/%s.yaml" .name)) }}
{{- else if $given -}}
{{ toJson (dict "workload" $given.workload "staticBytes" (include "headpond.bytes" $given.staticBytes) "path" $given.path) }}
{{- else if hasKey $catalogue.bundles .name -}}
{{- $known := index $catalogue.bundles .name -}}
{{ toJson (dict "workload" $known.workload "staticBytes" (toString (int64 $known.staticBytes)) "path" (printf "bundles/%s" .name)) }}
{{- else -}}
{}
{{- end -}}
{{- end -}}
