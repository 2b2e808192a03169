{{- define "headpond.fullname" -}}
{{- $name := .Values.nameOverride | default .Chart.Name -}}
{{- if .Values.fullnameOverride -}}
{{ .Values.fullnameOverride }}
{{- else if contains $name .Release.Name -}}
{{ .Release.Name }}
{{- else -}}
{{ printf "%s-%s" .Release.Name $name }}
{{- end -}}
{{- end -}}

{{/* Labels by which our own policies and monitors find pods. They are the same over upgrades
     of the chart: a changed label in a pod's template means a new cluster. */}}
{{- define "headpond.podLabels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "headpond.labels" -}}
{{ include "headpond.podLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end -}}

{{- define "headpond.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "headpond.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{/* The image of a kind, `cpu` or `cuda`: dict "root" "kind". */}}
{{- define "headpond.image" -}}
{{- $image := index .root.Values.image .kind -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (printf "%s-%s" .root.Chart.AppVersion .kind) }}
{{- end -}}
{{- end -}}

{{/* The Service that KubeRay keeps in front of the proxies of the cluster that serves. */}}
{{- define "headpond.serveService" -}}
{{ include "headpond.fullname" . }}-serve-svc
{{- end -}}

{{- define "headpond.keysSecret" -}}
{{ .Values.keys.existingSecret | default (printf "%s-keys" (include "headpond.fullname" .)) }}
{{- end -}}

{{/* Whether callers need a key; of a file of settings that is left to who wrote it. */}}
{{- define "headpond.hasKeys" -}}
{{- if or .Values.keys.existingSecret .Values.keys.hashed .Values.settingsSecret.name }}true{{ end -}}
{{- end -}}

{{- define "headpond.catalogue" -}}
{{ .Files.Get "files/catalogue.yaml" }}
{{- end -}}
