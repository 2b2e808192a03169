{{/*
Everything that would only go wrong in the cluster, as sentences that say what to fix. Each
part gives JSON, `{"problems": [...]}`; all of them are told at once.
*/}}
{{- define "headpond.checks" -}}
{{- $problems := list -}}
{{- range list "release" "groups" "placement" -}}
{{- $found := include (printf "headpond.check.%s" .) $ | fromJson -}}
{{- $problems = concat $problems $found.problems -}}
{{- end -}}
{{- if not $problems -}}{{/* The others look up what these have found to be there. */}}
{{- range list "models" "room" "aliases" "jobs" "upgrade" "doors" -}}
{{- $found := include (printf "headpond.check.%s" .) $ | fromJson -}}
{{- $problems = concat $problems $found.problems -}}
{{- end -}}
{{- end -}}
{{- if $problems -}}
{{- fail (printf "\n\nThe values of headpond can't work:\n- %s\n" (join "\n- " $problems)) -}}
{{- end -}}
{{- end -}}

{{- define "headpond.check.release" -}}
{{- $problems := list -}}
{{- $name := include "headpond.fullname" . -}}
{{- if or (gt (len $name) 47) (not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name)) -}}
{{- $problems = append $problems (printf "the RayService would be called %q, and KubeRay takes at most 47 of a-z, 0-9 and '-', a letter first: set fullnameOverride" $name) -}}
{{- end -}}
{{ toJson (dict "problems" $problems) }}
{{- end -}}

{{- define "headpond.check.groups" -}}
{{- $problems := list -}}
{{- $seen := dict -}}
{{- range (include "headpond.groups" . | fromJson).groups -}}
{{- if hasKey $seen .name -}}
{{- $problems = append $problems (printf "two groups of pods are called %q, and pools, models with pods of their own, router and jobs share one list of names: rename one" .name) -}}
{{- end -}}
{{- $_ := set $seen .name true -}}
{{- if gt (int .min) (int .max) -}}
{{- $problems = append $problems (printf "pods of %q: at least %d is more than at most %d: raise maxPods (or max_replicas), or lower minPods (or min_replicas)" .name (int .min) (int .max)) -}}
{{- end -}}
{{- if .pods.gpu -}}
{{- if not (hasKey $.Values.gpuKinds .pods.gpu.kind) -}}
{{- $problems = append $problems (printf "pods of %q: gpu.kind %q is none of gpuKinds (%s): use one of those, or add it there with its memory" .name .pods.gpu.kind (keys $.Values.gpuKinds | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson (dict "problems" $problems) }}
{{- end -}}

{{/* That everything has pods to run in. */}}
{{- define "headpond.check.placement" -}}
{{- $problems := list -}}
{{- $pools := list -}}
{{- range .Values.pools }}{{ $pools = append $pools .name }}{{ end -}}
{{- $entries := list (dict "what" "router" "of" .Values.router) -}}
{{- if .Values.jobs.enabled }}{{ $entries = append $entries (dict "what" "jobs" "of" .Values.jobs) }}{{ end -}}
{{- range $at, $model := .Values.models -}}
{{- $what := printf "models[%d] (%s)" $at $model.name -}}
{{- $entries = append $entries (dict "what" $what "of" $model) -}}
{{- if and $model.pods $model.pool -}}
{{- $problems = append $problems (printf "%s has both pool and pods: keep pods for pods of its own, or pool to share some" $what) -}}
{{- end -}}
{{- end -}}
{{- range $entries -}}
{{- $of := .of -}}
{{- if $of.pods -}}
{{- else if not $of.pool -}}
{{- $problems = append $problems (printf "%s has nowhere to run: name a pool (%s), or describe pods of its own" .what (join ", " $pools)) -}}
{{- else if not (has $of.pool $pools) -}}
{{- $problems = append $problems (printf "%s: there is no pool %q: use one of %s, or add it to pools" .what $of.pool (join ", " $pools)) -}}
{{- end -}}
{{- if $of.autoscaling -}}
{{- $least := int $of.autoscaling.min_replicas -}}
{{- $most := int $of.autoscaling.max_replicas -}}
{{- if gt $least $most -}}
{{- $problems = append $problems (printf "%s: autoscaling.min_replicas %d is more than max_replicas %d: raise the one or lower the other" .what $least $most) -}}
{{- end -}}
{{- if $of.replicas -}}
{{- $problems = append $problems (printf "%s has both replicas and autoscaling: keep one" .what) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson (dict "problems" $problems) }}
{{- end -}}

{{/* That each model's workload, bundle, device, threads and memory fit each other. */}}
{{- define "headpond.check.models" -}}
{{- $root := . -}}
{{- $problems := list -}}
{{- $catalogue := include "headpond.catalogue" . | fromYaml -}}
{{- $groups := dict -}}
{{- range (include "headpond.groups" . | fromJson).groups }}{{ $_ := set $groups .name . }}{{ end -}}
{{- $names := dict -}}
{{- range $at, $model := .Values.models -}}
{{- $what := printf "models[%d] (%s)" $at .name -}}
{{- if hasKey $names .name -}}
{{- $problems = append $problems (printf "%s: models[%d] has this name too: each is an application of its own, rename one" $what (get $names .name)) -}}
{{- else if has .name (list "router" "jobs") -}}
{{- $problems = append $problems (printf "%s: this name is the platform's own: choose another" $what) -}}
{{- end -}}
{{- $_ := set $names .name $at -}}
{{- $bundle := include "headpond.bundle" (dict "root" $root "name" .bundle) | fromJson -}}
{{- $args := .args | default dict -}}
{{- $pods := (index $groups (include "headpond.groupName" (dict "entry" . "own" .name))).pods -}}
{{- $device := include "headpond.device" (dict "model" . "pods" $pods) -}}
{{- if not (hasKey $catalogue.workloads .workload) -}}
{{- $problems = append $problems (printf "%s: there is no workload %q: use one of %s" $what .workload (keys $catalogue.workloads | sortAlpha | join ", ")) -}}
{{- else if not $bundle -}}
{{- $problems = append $problems (printf "%s: there is no bundle %q: use one of the image's (%s), or describe it in bundles" $what .bundle (keys $catalogue.bundles | sortAlpha | join ", ")) -}}
{{- else if ne $bundle.workload .workload -}}
{{- $problems = append $problems (printf "%s: bundle %q is for %s, not %s: set workload: %s, or choose another bundle" $what .bundle $bundle.workload .workload $bundle.workload) -}}
{{- else if not (has (regexReplaceAll ":.*$" $device "") (index $catalogue.workloads .workload).devices) -}}
{{- $problems = append $problems (printf "%s: %s runs on %s, not on %s: %s" $what .workload (join " or " (index $catalogue.workloads .workload).devices) $device (ternary "set args.device: cpu, or take pods without a GPU" "choose another args.device" (hasKey $pods "gpu"))) -}}
{{- else if and (ne $device "cpu") (not $pods.gpu) -}}
{{- $problems = append $problems (printf "%s: args.device is %s, and its pods have no GPU: give them gpu.kind" $what $device) -}}
{{- else -}}
{{- if gt (float64 ($args.threads | default 1)) (float64 $pods.resources.cpu) -}}
{{- $problems = append $problems (printf "%s: a replica reserves %v CPUs (args.threads), and its pods have %v: it would never be placed" $what ($args.threads | default 1) $pods.resources.cpu) -}}
{{- end -}}
{{- $mounted := or (not (hasPrefix "/" $bundle.path)) (hasPrefix "/etc/headpond/bundles/" $bundle.path) -}}
{{- range $root.Values.extraVolumeMounts -}}
{{- if hasPrefix (printf "%s/" (trimSuffix "/" .mountPath)) $bundle.path }}{{ $mounted = true }}{{ end -}}
{{- end -}}
{{- if not $mounted -}}
{{- $problems = append $problems (printf "%s: bundle %q lies at %s, and nothing is mounted there: add its volume to extraVolumes and extraVolumeMounts" $what .bundle $bundle.path) -}}
{{- end -}}
{{- $state := include "headpond.bytes" ($args.state_bytes | default $catalogue.stateBytes) | int64 -}}
{{- $needed := add (int64 $bundle.staticBytes) $state -}}
{{- $where := "a pod" -}}
{{- $memory := $pods.resources.memory -}}
{{- $reserve := add (include "headpond.bytes" $root.Values.reserve.pod | int64) (include "headpond.bytes" $root.Values.ray.objectStoreMemory | int64) -}}
{{- if ne $device "cpu" -}}
{{- $where = printf "a %s" $pods.gpu.kind -}}
{{- $memory = (index $root.Values.gpuKinds $pods.gpu.kind).memory -}}
{{- $reserve = include "headpond.bytes" $root.Values.reserve.gpu | int64 -}}
{{- end -}}
{{- $usable := sub (include "headpond.bytes" $memory | int64) $reserve -}}
{{- if gt $needed $usable -}}
{{- $problems = append $problems (printf "%s: bundle %q needs %s (%s of weights, %s for requests by args.state_bytes), and %s has %s after its reserve of %s: lower args.state_bytes, or give it more memory" $what .bundle (include "headpond.mib" $needed) (include "headpond.mib" $bundle.staticBytes) (include "headpond.mib" $state) $where (include "headpond.mib" $usable) (include "headpond.mib" $reserve)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{ toJson (dict "problems" $problems) }}
{{- end -}}

{{/* That a pool, as large as it may get, holds the least that is to run in it. */}}
{{- define "headpond.check.room" -}}
{{- $problems := list -}}
{{- $entries := list (dict "of" .Values.router "cpus" .Values.router.cpus) -}}
{{- if .Values.jobs.enabled -}}
{{- $workers := dict "pool" .Values.jobs.pool "pods" .Values.jobs.pods "replicas" (.Values.jobs.args.workers | default 1) -}}
{{- $entries = append $entries (dict "of" $workers "cpus" .Values.jobs.cpus) -}}
{{- end -}}
{{- range .Values.models }}{{ $entries = append $entries (dict "of" . "cpus" ((.args | default dict).threads | default 1)) }}{{ end -}}
{{- range .Values.pools -}}
{{- $pool := . -}}
{{- $needed := 0.0 -}}
{{- range $entries -}}
{{- if and (not .of.pods) (eq .of.pool $pool.name) -}}
{{- $replicas := .of.replicas | default 1 -}}
{{- if .of.autoscaling }}{{ $replicas = .of.autoscaling.min_replicas }}{{ end -}}
{{- $needed = addf $needed (mulf (float64 $replicas) (float64 .cpus)) -}}
{{- end -}}
{{- end -}}
{{- $most := mulf (float64 .maxPods) (float64 .pods.resources.cpu) -}}
{{- if gt $needed $most -}}
{{- $problems = append $problems (printf "pool %q: what is to run in it reserves %v CPUs, and its pods have %v at most: raise maxPods or resources.cpu, or lower replicas or args.threads" .name $needed $most) -}}
{{- end -}}
{{- end -}}
{{ toJson (dict "problems" $problems) }}
{{- end -}}

{{- define "headpond.check.aliases" -}}
{{- $problems := list -}}
{{- $owners := dict -}}
{{- $names := dict -}}
{{- range $at, $model := .Values.models -}}
{{- $_ := set $names .name true -}}
{{- $alias := .alias | default .name -}}
{{- if hasKey $owners $alias -}}
{{- $problems = append $problems (printf "models[%d] (%s): alias %q is %s's already: give each model its own, and split traffic by router.aliases" $at .name $alias (get $owners $alias)) -}}
{{- end -}}
{{- $_ := set $owners $alias .name -}}
{{- end -}}
{{- range $alias, $weights := .Values.router.aliases -}}
{{- $sum := 0 -}}
{{- range $target, $weight := $weights -}}
{{- $sum = add $sum (int $weight) -}}
{{- if not (hasKey $names $target) -}}
{{- $problems = append $problems (printf "router.aliases.%s: there is no model %q: use names of models (%s)" $alias $target (keys $names | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- if eq (int $sum) 0 -}}
{{- $problems = append $problems (printf "router.aliases.%s: its weights sum to 0, so nobody would answer: give one model more" $alias) -}}
{{- end -}}
{{- end -}}
{{ toJson (dict "problems" $problems) }}
{{- end -}}

{{- define "headpond.check.jobs" -}}
{{- $problems := list -}}
{{- if .Values.jobs.enabled -}}
{{- $store := include "headpond.jobStore" . | fromJson -}}
{{- if not (hasPrefix "postgresql://" ($store.database | default "")) -}}
{{- $problems = append $problems "jobs are enabled without a database that all pods reach: set jobs.store.database to postgresql://user@host:5432/db, or postgresql.enabled: true" -}}
{{- end -}}
{{- if not $store.objects -}}
{{- $problems = append $problems "jobs are enabled without an object store that all pods reach: set jobs.store.objects, e.g. to s3://bucket/headpond" -}}
{{- end -}}
{{- end -}}
{{- if and .Values.settingsSecret.name .Values.settings -}}
{{- $problems = append $problems "there are both settings and settingsSecret: keep one, or put the settings into the Secret" -}}
{{- end -}}
{{- if and .Values.keys.existingSecret .Values.keys.hashed -}}
{{- $problems = append $problems "keys has both existingSecret and hashed: keep one, or put the hashed keys into the Secret" -}}
{{- end -}}
{{ toJson (dict "problems" $problems) }}
{{- end -}}

{{/* Rules that only the operator knows, and would tell in an event that nobody reads. */}}
{{- define "headpond.check.upgrade" -}}
{{- $problems := list -}}
{{- $upgrade := .Values.upgrade -}}
{{- if eq $upgrade.strategy "NewClusterWithIncrementalUpgrade" -}}
{{- if not .Values.autoscaler.enabled -}}
{{- $problems = append $problems "upgrade.strategy NewClusterWithIncrementalUpgrade needs Ray's autoscaler: set autoscaler.enabled: true, or strategy: NewCluster" -}}
{{- end -}}
{{- if not $upgrade.gatewayClassName -}}
{{- $problems = append $problems "upgrade.strategy NewClusterWithIncrementalUpgrade moves traffic by a Gateway: set upgrade.gatewayClassName" -}}
{{- end -}}
{{- if or .Values.ingress.enabled .Values.httpRoute.enabled -}}
{{- $problems = append $problems (printf "upgrade.strategy NewClusterWithIncrementalUpgrade moves calls at KubeRay's own Gateway (%s-gateway), and ingress or httpRoute would lead past it: turn them off, or take strategy: NewCluster" (include "headpond.fullname" .)) -}}
{{- end -}}
{{- if gt (int $upgrade.stepSizePercent) (int $upgrade.maxSurgePercent) -}}
{{- $problems = append $problems (printf "upgrade.stepSizePercent %d is more than maxSurgePercent %d: a step can't move more than there is room for" (int $upgrade.stepSizePercent) (int $upgrade.maxSurgePercent)) -}}
{{- end -}}
{{- end -}}
{{- $fault := .Values.gcsFaultTolerance -}}
{{- if and $fault.enabled (not $fault.redisAddress) (not .Values.valkey.enabled) -}}
{{- $problems = append $problems "gcsFaultTolerance is enabled without a Redis: set gcsFaultTolerance.redisAddress, or valkey.enabled: true" -}}
{{- end -}}
{{- range $name := list "RAY_REDIS_ADDRESS" "REDIS_PASSWORD" "REDIS_USERNAME" "RAY_enable_autoscaler_v2" "RAY_AUTH_MODE" "RAY_AUTH_TOKEN" -}}
{{- if or (hasKey $.Values.ray.env $name) (hasKey ($.Values.head.pods.env | default dict) $name) -}}
{{- $problems = append $problems (printf "the variable %s is KubeRay's to set: use gcsFaultTolerance, autoscaler or ray.auth instead" $name) -}}
{{- end -}}
{{- end -}}
{{ toJson (dict "problems" $problems) }}
{{- end -}}

{{- define "headpond.check.doors" -}}
{{- $problems := list -}}
{{- if and .Values.ingress.enabled (not .Values.ingress.hosts) -}}
{{- $problems = append $problems "ingress is enabled without hosts: list at least one in ingress.hosts" -}}
{{- end -}}
{{- if and .Values.httpRoute.enabled (not .Values.httpRoute.parentRefs) -}}
{{- $problems = append $problems "httpRoute is enabled without parentRefs: name the Gateway it belongs to" -}}
{{- end -}}
{{- if and .Values.inferencePools.enabled (not .Values.inferencePools.parentRefs) -}}
{{- $problems = append $problems "inferencePools are enabled without parentRefs: name the Gateway their routes belong to" -}}
{{- end -}}
{{- if and .Values.inferencePools.enabled (not .Values.settings.metrics_open) (not .Values.settingsSecret.name) -}}
{{- $problems = append $problems "inferencePools are enabled, and an endpoint picker reads /metrics without a key: set settings.metrics_open: true" -}}
{{- end -}}
{{- if and (or .Values.ingress.enabled .Values.httpRoute.enabled .Values.inferencePools.enabled) (not (include "headpond.hasKeys" .)) -}}
{{- $problems = append $problems "a door to the outside is open without API keys: set keys.existingSecret or keys.hashed" -}}
{{- end -}}
{{- $monitor := .Values.monitoring.podMonitor -}}
{{- if and $monitor.enabled (include "headpond.hasKeys" .) (not $monitor.bearerTokenSecret.name) (not .Values.settings.metrics_open) -}}
{{- $problems = append $problems "monitoring.podMonitor can't read /metrics without a key: set monitoring.podMonitor.bearerTokenSecret, or settings.metrics_open: true" -}}
{{- end -}}
{{- $policy := .Values.networkPolicy -}}
{{- if and $policy.enabled $policy.clients $monitor.enabled (not $policy.monitoring) -}}
{{- $problems = append $problems "networkPolicy.clients says who may ask, and Prometheus asks too: set networkPolicy.monitoring to where it runs" -}}
{{- end -}}
{{ toJson (dict "problems" $problems) }}
{{- end -}}
