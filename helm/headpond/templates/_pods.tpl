{{/* The environment of a Ray container: dict "root" "pods". What is named later wins. */}}
{{- define "headpond.env" -}}
{{- $catalogue := include "headpond.catalogue" .root | fromYaml -}}
{{- $own := dict "HEADPOND_HOME" "/opt/headpond" "HEADPOND_CACHE" "/var/cache/headpond" "HOME" "/tmp" -}}
{{- $values := merge dict (.pods.env | default dict) .root.Values.ray.env $own $catalogue.env -}}
{{- range $at, $name := keys $values | sortAlpha }}
{{- if $at }}{{ "\n" }}{{ end -}}
- {name: {{ $name }}, value: {{ get $values $name | quote }}}
{{- end }}
{{- $secret := .root.Values.jobs.databasePasswordSecret -}}
{{- if and .root.Values.jobs.enabled (or $secret.name .root.Values.postgresql.enabled) }}
- name: PGPASSWORD
  valueFrom:
    secretKeyRef:
      {{- if $secret.name }}
      name: {{ $secret.name }}
      key: {{ $secret.key }}
      {{- else }}
      name: {{ .root.Values.postgresql.existingSecret | default (printf "%s-postgresql" .root.Release.Name | trunc 52 | trimSuffix "-") }}
      key: password
      {{- end }}
{{- end }}
{{- end -}}

{{/* A pod of Ray: dict "root" "name" (of its group) "component" (head or worker) "pods". */}}
{{- define "headpond.podTemplate" -}}
{{- $values := .root.Values -}}
{{- $gpu := .pods.gpu -}}
{{- $kind := dict -}}
{{- if $gpu }}{{ $kind = index $values.gpuKinds $gpu.kind }}{{ end -}}
{{- $size := dict "cpu" (toString .pods.resources.cpu) "memory" (include "headpond.quantity" .pods.resources.memory) -}}
{{- if $gpu }}{{ $_ := set $size $kind.resource (toString ($gpu.count | default 1)) }}{{ end -}}
metadata:
  labels:
    {{- include "headpond.podLabels" .root | nindent 4 }}
    app.kubernetes.io/component: {{ .component }}
    headpond/group: {{ .name }}
  {{- with merge dict (.pods.annotations | default dict) $values.podAnnotations }}
  annotations: {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  {{- if eq .component "worker" }}
  serviceAccountName: {{ include "headpond.serviceAccountName" .root }}
  automountServiceAccountToken: false
  {{- else if not $values.autoscaler.enabled }}
  automountServiceAccountToken: false
  {{- end }}
  enableServiceLinks: false
  terminationGracePeriodSeconds: {{ int $values.ray.terminationGracePeriodSeconds }}
  securityContext: {{- toYaml $values.podSecurityContext | nindent 4 }}
  {{- with $values.image.pullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with merge dict (.pods.nodeSelector | default dict) ($kind.nodeSelector | default dict) }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- range $key := list "tolerations" "affinity" "topologySpreadConstraints" }}
  {{- with index $.pods $key }}
  {{ $key }}: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- end }}
  {{- range $key := list "priorityClassName" "runtimeClassName" }}
  {{- with index $.pods $key }}
  {{ $key }}: {{ . }}
  {{- end }}
  {{- end }}
  containers:
    - name: ray-{{ .component }}
      image: {{ include "headpond.image" (dict "root" .root "kind" (ternary "cuda" "cpu" (not (empty $gpu)))) }}
      imagePullPolicy: {{ $values.image.pullPolicy }}
      securityContext: {{- toYaml $values.containerSecurityContext | nindent 8 }}
      env: {{- include "headpond.env" (dict "root" .root "pods" .pods) | nindent 8 }}
      {{- with $values.credentials }}
      envFrom:
        {{- range . }}
        - secretRef: {name: {{ . }}}
        {{- end }}
      {{- end }}
      ports:
        {{- if eq .component "head" }}
        - {name: gcs, containerPort: 6379}
        - {name: dashboard, containerPort: 8265}
        - {name: client, containerPort: 10001}
        {{- end }}
        - {name: serve, containerPort: 8000}
        - {name: metrics, containerPort: 8080}
      # Of a worker the proxy has to answer too: KubeRay sends callers to ready pods.
      startupProbe:
        httpGet: {path: /api/local_raylet_healthz, port: 52365}
        periodSeconds: 5
        failureThreshold: 60
      livenessProbe:
        httpGet: {path: {{ ternary "/api/healthz" "/api/local_raylet_healthz" (eq .component "head") }}, port: 52365}
        periodSeconds: 10
        timeoutSeconds: 5
        failureThreshold: 12
      readinessProbe:
        {{- if eq .component "head" }}
        httpGet: {path: /api/healthz, port: 52365}
        {{- else }}
        httpGet: {path: /-/healthz, port: serve}
        {{- end }}
        periodSeconds: 5
        timeoutSeconds: 5
        failureThreshold: 2
      resources:
        requests: {{- toYaml $size | nindent 10 }}
        limits: {{- toYaml $size | nindent 10 }}
      volumeMounts:
        - {name: tmp, mountPath: /tmp}
        - {name: cache, mountPath: /var/cache/headpond}
        - {name: bundles, mountPath: /etc/headpond/bundles, readOnly: true}
        - {name: keys, mountPath: /etc/headpond/keys, readOnly: true}
        {{- if $values.settingsSecret.name }}
        - {name: settings, mountPath: /etc/headpond/settings, readOnly: true}
        {{- end }}
        {{- with $values.extraVolumeMounts }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
  volumes:
    - {name: tmp, emptyDir: {}}
    - name: cache
      {{- if $values.cache.existingClaim }}
      persistentVolumeClaim: {claimName: {{ $values.cache.existingClaim }}}
      {{- else }}
      emptyDir: {sizeLimit: {{ include "headpond.quantity" $values.cache.sizeLimit }}}
      {{- end }}
    # Both are always there, so that a first bundle or key changes no pod.
    - name: bundles
      configMap: {name: {{ include "headpond.fullname" .root }}-bundles}
    - name: keys
      secret: {secretName: {{ include "headpond.keysSecret" .root }}, optional: true}
    {{- with $values.settingsSecret }}
    {{- if .name }}
    - name: settings
      secret: {secretName: {{ .name }}, items: [{key: {{ .key }}, path: {{ .key }}}]}
    {{- end }}
    {{- end }}
    {{- with $values.extraVolumes }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}
